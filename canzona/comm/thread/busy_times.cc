#include "canzona/comm/thread/busy_times.h"

#include <algorithm>

namespace canzona {

BusyTimes::Time BusyTimes::free_after(Time begin, Time end) const {
  Time free = begin;
  for (size_t i = 0; i < size_; ++i)
    if (stretches_[i].begin < end && begin < stretches_[i].end)
      free = stretches_[i].end;
  return free;
}

void BusyTimes::merge_with_next(size_t i) {
  stretches_[i].end = stretches_[i + 1].end;
  std::copy(stretches_.begin() + static_cast<std::ptrdiff_t>(i) + 2,
            stretches_.begin() + static_cast<std::ptrdiff_t>(size_),
            stretches_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  --size_;
}

void BusyTimes::add(Time begin, Time end) {
  if (begin == end) return;
  size_t place = size_;
  for (; place > 0 && stretches_[place - 1].begin > begin; --place)
    stretches_[place] = stretches_[place - 1];
  stretches_[place] = {begin, end};
  ++size_;
  if (place + 1 < size_ && stretches_[place + 1].begin == end)
    merge_with_next(place);
  if (place > 0 && stretches_[place - 1].end == begin)
    merge_with_next(place - 1);
  if (size_ == kMost) merge_with_next(0);
}

BusyTimes::Time first_free(const BusyTimes& a, const BusyTimes& b,
                           BusyTimes::Time ready, BusyTimes::Time duration) {
  BusyTimes::Time begin = ready;
  while (true) {
    const BusyTimes::Time later =
        std::max(a.free_after(begin, begin + duration),
                 b.free_after(begin, begin + duration));
    if (later == begin) return begin;
    begin = later;
  }
}

}  // namespace canzona
