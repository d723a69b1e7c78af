// A LinkUse measures how long links were busy: the union of time intervals that
// may overlap.
//
//   LinkUse use;
//   use.add(ready, arrival);
//   Time busy = use.busy(now);   // of all time before now
//
// Its size is fixed: when there are too many intervals, the oldest is only
// added to the total, and later intervals are clipped to begin at its end. Any
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
  std::array<Stretch, kMost> stretches_;  // disjoint, in order
  size_t size_ = 0;
  Time past_{0};  // busy time before them
  Time past_end_{Time::min()};
};

// The busy times of a port: disjoint intervals, kept in order.
//
//   BusyTimes sending;
//   Time end = sending.book(ready, duration);
//
// Its size is fixed: when there are too many intervals, the oldest two are
// merged, and the free time between them is lost. Gaps lie before the latest
// time at which any message was ready, so only time long past is lost. One
// thread at a time.
class BusyTimes {
 public:
  using Time = std::chrono::nanoseconds;

  // Books the first free time from `ready` on, around busy intervals, until it
  // adds up to `duration`; returns its end.
  Time book(Time ready, Time duration);

 private:
  static constexpr size_t kMost = 256;
  struct Stretch {
    Time begin{0}, end{0};
  };

  // Replaces intervals [first, last) by one.
  void replace(size_t first, size_t last, const Stretch& stretch);

  std::array<Stretch, kMost> stretches_;
  size_t size_ = 0;
};

}  // namespace canzona
