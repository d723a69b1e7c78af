#include "canzona/comm/thread/busy_times.h"

#include <algorithm>
#include <span>

namespace canzona {

BusyTimes::Time BusyTimes::book(Time ready, Time duration) {
  if (duration == Time{0}) return ready;
  const auto all = std::span(stretches_).first(size_);
  const auto touched = std::ranges::lower_bound(all, ready, {}, &Stretch::end);
  const auto first = static_cast<size_t>(touched - all.begin());
  Time free = ready;
  Time left = duration;
  size_t last = first;
  for (; last < size_ && all[last].begin < free + left; ++last) {
    left -= std::max(all[last].begin - free, Time{0});
    free = all[last].end;
  }
  const Time end = free + left;
  Stretch busy{last > first ? std::min(ready, all[first].begin) : ready, end};
  if (last < size_ && all[last].begin == end) busy.end = all[last++].end;
  replace(first, last, busy);
  return end;
}

void BusyTimes::replace(size_t first, size_t last, const Stretch& stretch) {
  const auto at = [&](size_t i) {
    return stretches_.begin() + static_cast<std::ptrdiff_t>(i);
  };
  if (last == first)
    std::copy_backward(at(first), at(size_), at(size_ + 1));
  else
    std::copy(at(last), at(size_), at(first + 1));
  stretches_[first] = stretch;
  size_ = size_ + 1 - (last - first);
  if (size_ < kMost) return;
  stretches_[1].begin = stretches_[0].begin;
  std::copy(at(1), at(size_), at(0));
  --size_;
}

}  // namespace canzona
