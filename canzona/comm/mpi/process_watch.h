// Notices that other processes of this machine have ended, however they did,
// or are stopped.
//
//   ProcessWatch watch;
//   watch.add(rank, pid);          // where place_of_process() is equal
//   if (watch.first_ended() >= 0) …
//
// One thread at a time, but those that are const: any, once all are added.
#pragma once

#include <poll.h>

#include <cstdint>
#include <vector>

namespace canzona {

// Equal for processes that can watch each other: one kernel, one namespace of
// process numbers. 0 where that cannot be told.
uint64_t place_of_process();

class ProcessWatch {
 public:
  ProcessWatch() = default;
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  // Without an effect where the kernel cannot watch (before Linux 5.3).
  void add(int rank, int64_t pid);

  // The first rank, in the order of adding, whose process has ended; or -1.
  int first_ended();
  // All of them, and those whose processes are stopped.
  std::vector<int> ended() const;
  std::vector<int> stopped() const;

 private:
  std::vector<pollfd> files_;
  std::vector<int> ranks_;
  std::vector<int64_t> processes_;
};

}  // namespace canzona
