#include "canzona/comm/link_use.h"

#include <algorithm>
#include <span>

namespace canzona {

void LinkUse::add(Time begin, Time end) {
  const std::lock_guard lock(mutex_);
  begin = std::max(begin, past_end_);
  if (begin >= end) return;
  const auto all = std::span(stretches_).first(size_);
  const auto first = std::ranges::lower_bound(all, begin, {}, &Stretch::end);
  auto last = first;
  for (; last != all.end() && last->begin <= end; ++last) {
    begin = std::min(begin, last->begin);
    end = std::max(end, last->end);
  }
  const auto at = stretches_.begin() + (first - all.begin());
  const auto rest = stretches_.begin() + (last - all.begin());
  const auto old_end = stretches_.begin() + static_cast<std::ptrdiff_t>(size_);
  if (at == rest)
    std::copy_backward(at, old_end, old_end + 1);
  else
    std::copy(rest, old_end, at + 1);
  *at = {begin, end};
  size_ = size_ + 1 - static_cast<size_t>(rest - at);
  if (size_ == kMost) forget_oldest();
}

void LinkUse::forget_oldest() {
  past_ += stretches_[0].end - stretches_[0].begin;
  past_end_ = stretches_[0].end;
  std::copy(stretches_.begin() + 1, stretches_.end(), stretches_.begin());
  --size_;
}

LinkUse::Time LinkUse::busy(Time now) const {
  const std::lock_guard lock(mutex_);
  Time sum = past_;
  for (const Stretch& s : std::span(stretches_).first(size_)) {
    if (s.begin >= now) break;
    sum += std::min(s.end, now) - s.begin;
  }
  return sum;
}

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
