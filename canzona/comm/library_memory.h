// LibraryMemory tells how much of a device's memory the library behind a
// transport takes, by communicator: `bench step` and `bench collectives` show
// it beside the plan's.
#pragma once

#include <cstdint>
#include <vector>

namespace canzona {

// A device tells only what all of its ranks take: each that shares it has the
// same part.
struct LibraryMemory {
  std::vector<int> ranks;  // of the communicator, as the world counts them
  int64_t founding = 0;    // bytes
  int64_t first_use = 0;   // with its first messages and first collective
  int64_t bytes() const { return founding + first_use; }
};

inline int64_t total_bytes(const std::vector<LibraryMemory>& communicators) {
  int64_t bytes = 0;
  for (const LibraryMemory& of : communicators) bytes += of.bytes();
  return bytes;
}

}  // namespace canzona
