#include "canzona/runtime/lane_times.h"

#include <cmath>

namespace canzona {

LaneTimes::LaneTimes(Engine& engine, const std::function<int64_t()>& now)
    : engine_(engine), origin_(engine.make_timed_event()) {
  engine_.synchronize();
  engine_.record_in(*origin_);
  engine_.synchronize();
  host_ = now();
}

int64_t LaneTimes::time_of(const Event& event) const {
  return host_ + std::llround(event.seconds_after(*origin_) * 1e9);
}

int64_t LaneClock::stamp() {
  int64_t number = std::ssize(events_);
  if (!unused_.empty()) {
    number = unused_.back();
    unused_.pop_back();
  } else if (number == kMost) {
    return kMost - 1;
  } else {
    events_.push_back(times_.make_event());
  }
  record_(*events_[static_cast<size_t>(number)]);
  return number;
}

bool LaneClock::is_passed(int64_t stamp) const {
  return events_[static_cast<size_t>(stamp)]->reached();
}

int64_t LaneClock::time_of(int64_t stamp) {
  return times_.time_of(*events_[static_cast<size_t>(stamp)]);
}

}  // namespace canzona
