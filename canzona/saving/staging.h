// Memory to which a background save copies a rank's numbers, so that steps go
// on while they are written. Internal to this room.
//
//   StagingMemory staging(elements, threads);
//   staging.copy({{from, 0}, …});     // on `threads` threads
//   write(staging.values());
//
// All pages are faulted in at the start, as huge pages if the system has them,
// so that copies cause no page faults. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "canzona/linalg/memory.h"

namespace canzona::saving {

struct StagedCopy {
  std::span<const float> from;  // memory of this process
  int64_t to = 0;               // first element in the staging memory
};

class StagingMemory {
 public:
  StagingMemory() = default;
  // Throws std::bad_alloc if there is not enough memory.
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
// processors available to this process, divided among the ranks with the same
// host name, which pause at the same time; at least 1.
int copy_threads(int64_t ranks_here);

}  // namespace canzona::saving
