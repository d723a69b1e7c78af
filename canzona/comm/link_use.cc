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

}  // namespace canzona
