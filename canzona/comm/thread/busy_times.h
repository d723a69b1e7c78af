// When a port is busy: stretches of time that do not overlap, kept in order.
//
//   BusyTimes sending, receiving;
//   Time begin = first_free(sending, receiving, ready, duration);
//   sending.add(begin, begin + duration);
//
// In a fixed place: when there are too many stretches, the oldest two become
// one, and what was free between them is lost. One thread at a time.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

namespace canzona {

class BusyTimes {
 public:
  using Time = std::chrono::nanoseconds;

  // The end of the last stretch that meets [begin, end), or `begin`.
  Time free_after(Time begin, Time end) const;
  // The stretch must be free.
  void add(Time begin, Time end);

 private:
  static constexpr size_t kMost = 64;
  struct Stretch {
    Time begin{0}, end{0};
  };

  void merge_with_next(size_t i);

  std::array<Stretch, kMost> stretches_;
  size_t size_ = 0;
};

// The first time from `ready` on when both are free for so long.
BusyTimes::Time first_free(const BusyTimes& a, const BusyTimes& b,
                           BusyTimes::Time ready, BusyTimes::Time duration);

}  // namespace canzona
