// A LinkUse tells how long links were busy: the union of stretches of time that
// may overlap.
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

// A port's busy times are stretches that do not overlap, kept in order.
//
//   BusyTimes sending;
//   Time end = sending.book(ready, duration);
//
// In a fixed place: when there are too many stretches, the oldest two become
// one, and what was free between them is lost. Gaps lie before the latest time
// that anybody was ready at, so that what is lost is long past. One thread at a
// time.

class BusyTimes {
 public:
  using Time = std::chrono::nanoseconds;

  // Takes the first free time from `ready` on, around what is busy, until it
  // adds up to `duration`; gives the end of it.
  Time book(Time ready, Time duration);

 private:
  static constexpr size_t kMost = 256;
  struct Stretch {
    Time begin{0}, end{0};
  };

  // Puts one in the place of stretches [first, last).
  void replace(size_t first, size_t last, const Stretch& stretch);

  std::array<Stretch, kMost> stretches_;
  size_t size_ = 0;
};

}  // namespace canzona
