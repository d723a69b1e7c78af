// Detects that other processes of this machine have ended, for whatever reason,
// or are stopped.
//
//   ProcessWatch watch;
//   watch.add(rank, pid);          // where place_of_process() is equal
//   if (watch.first_ended() >= 0) …
//
// One thread at a time; const functions may be called by any thread once all
// ranks are added.
#pragma once

#include <poll.h>

#include <cstdint>
#include <vector>

namespace canzona {

// Returns the same number for processes that can watch each other, which
// requires one kernel and one pid namespace; 0 if unknown.
uint64_t place_of_process();

class ProcessWatch {
 public:
  ProcessWatch() = default;
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  // Has no effect if the kernel cannot watch processes (before Linux 5.3).
  void add(int rank, int64_t pid);

  // Returns the first rank, in the order added, whose process has ended;
  // otherwise -1.
  int first_ended();
  // Return all ranks whose processes have ended, and those that are stopped.
  std::vector<int> ended() const;
  std::vector<int> stopped() const;

 private:
  std::vector<pollfd> files_;
  std::vector<int> ranks_;
  std::vector<int64_t> processes_;
};

}  // namespace canzona
