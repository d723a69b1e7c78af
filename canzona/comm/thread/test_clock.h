// For tests: link clocks whose time advances only by sleeping, for one rank, or
// for all ranks and their lanes together.
#pragma once

#include <algorithm>
#include <mutex>

#include "canzona/comm/thread/link_model.h"

namespace canzona::comm {

class TestClock final : public LinkClock {
 public:
  std::chrono::nanoseconds now() override { return now_; }
  void sleep_until(std::chrono::nanoseconds time) override {
    now_ = std::max(now_, time);
  }

 private:
  std::chrono::nanoseconds now_{0};
};

class SharedTestClock final : public LinkClock {
 public:
  std::chrono::nanoseconds now() override {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  void sleep_until(std::chrono::nanoseconds time) override {
    const std::lock_guard lock(mutex_);
    now_ = std::max(now_, time);
  }

 private:
  std::mutex mutex_;
  std::chrono::nanoseconds now_{0};
};

}  // namespace canzona::comm
