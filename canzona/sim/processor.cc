#include "canzona/sim/processor.h"

#include <algorithm>
#include <utility>

#include "canzona/base/check.h"

namespace canzona {

void Processor::start(double seconds, std::function<void()> done) {
  CANZONA_CHECK(!is_busy_, "work while there is work");
  is_busy_ = true;
  left_ = seconds;
  since_ = events_.now();
  done_ = std::move(done);
  schedule();
}

void Processor::copying(int change) {
  if (slowdown_ == 0) return;
  if (is_busy_) {
    left_ = std::max(0.0, left_ - (events_.now() - since_) * rate());
    since_ = events_.now();
  }
  num_copying_ += change;
  if (is_busy_) schedule();
}

double Processor::rate() const {
  return std::max(0.0, 1 - slowdown_ * num_copying_);
}

void Processor::schedule() {
  const int64_t number = ++number_;
  if (rate() == 0 && left_ > 0) return;  // until a copy ends
  const double end = left_ > 0 ? since_ + left_ / rate() : since_;
  events_.at(end, [this, number] {
    if (number != number_) return;
    is_busy_ = false;
    const auto done = std::exchange(done_, nullptr);
    done();
  });
}

}  // namespace canzona
