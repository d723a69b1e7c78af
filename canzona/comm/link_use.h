// How long links were busy: the union of stretches of time that overlap as they
// like.
//
//   LinkUse use;
//   use.add(ready, arrival);
//   Time busy = use.busy(now);   // of all time before now
//
// In a fixed place: when there are too many stretches, the oldest is only
// counted, and what would begin before its end is taken to begin there. Any
// thread may call.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <mutex>

namespace canzona {

class LinkUse {
 public:
  using Time = std::chrono::nanoseconds;

  void add(Time begin, Time end);
  Time busy(Time now) const;

 private:
  static constexpr size_t kMost = 64;
  struct Stretch {
    Time begin{0}, end{0};
  };

  void forget_oldest();

  mutable std::mutex mutex_;
  std::array<Stretch, kMost> stretches_;  // apart from each other, in order
  size_t size_ = 0;
  Time past_{0};  // busy before
  Time past_end_{Time::min()};
};

}  // namespace canzona
