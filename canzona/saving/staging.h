// Memory that a save in the background copies a rank's numbers to, so that
// steps go on while they are written. For the sources of this room.
//
//   StagingMemory staging(elements, threads);
//   staging.copy({{from, 0}, …});     // on `threads` threads
//   write(staging.values());
//
// All of it is there from the start, in large pages where the system has them:
// a copy touches no page for the first time. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "canzona/linalg/memory.h"

namespace canzona {

struct StagedCopy {
  std::span<const float> from;  // memory of this process
  int64_t to = 0;               // element of the staging memory
};

class StagingMemory {
 public:
  StagingMemory() = default;
  // std::bad_alloc if there is no memory left.
  StagingMemory(int64_t elements, int threads);

  int64_t elements() const { return elements_; }
  std::span<float> part(int64_t first, int64_t count) const;
  void copy(const std::vector<StagedCopy>& copies) const;

 private:
  struct Release {
    void operator()(std::byte* memory) const { host_memory().release(memory); }
  };
  std::unique_ptr<std::byte, Release> memory_;
  int64_t elements_ = 0;
  int threads_ = 1;
};

// Returns how many threads of a rank may copy while its step is paused: the
// processors that this process may use, dealt over the ranks that have the same
// host name and pause with it; at least 1.
int copy_threads(int64_t ranks_here);

}  // namespace canzona
