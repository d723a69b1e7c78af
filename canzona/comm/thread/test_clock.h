// For tests: a link clock whose time passes only by sleeping.
#pragma once

#include <algorithm>

#include "canzona/comm/thread/link_model.h"

namespace canzona {

class TestClock final : public LinkClock {
 public:
  std::chrono::nanoseconds now() override { return now_; }
  void sleep_until(std::chrono::nanoseconds time) override {
    now_ = std::max(now_, time);
  }

 private:
  std::chrono::nanoseconds now_{0};
};

}  // namespace canzona
