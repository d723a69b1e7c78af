// LibraryMemory says how much device memory the library behind a transport
// takes for a communicator; `bench step` and `bench collectives` show it beside
// the plan's.
#pragma once

#include <cstdint>
#include <vector>

namespace canzona {

// A device reports only what all of its ranks take together, so ranks that
// share it are each given an equal share.
struct LibraryMemory {
  std::vector<int> ranks;  // the communicator's, numbered as in the world
  int64_t founding = 0;    // bytes
  int64_t first_use = 0;   // with its first messages and its first collective
  int64_t bytes() const { return founding + first_use; }
};

inline int64_t total_bytes(const std::vector<LibraryMemory>& communicators) {
  int64_t bytes = 0;
  for (const LibraryMemory& of : communicators) bytes += of.bytes();
  return bytes;
}

}  // namespace canzona
