// Times of points in the lanes of a rank, by the device's own clock: for
// traces, and to measure how long compute waited. Internal to this folder.
//
//   LaneTimes times(engine, host_now);
//   LaneClock& clock = times.add([&](Event& event) { lane.record_in(event); });
//   const int64_t before = clock.stamp();   // a timed event of the lane
//   …
//   clock.time_of(before);                  // once it has passed
//
// The host and device clocks are aligned once, while the device is idle. One
// thread at a time; the engine and the lanes must outlive it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/trace/trace.h"

namespace canzona {

class LaneTimes;

class LaneClock final : public TrackClock {
 public:
  using Record = std::function<void(Event&)>;
  LaneClock(const LaneTimes& times, Record record)
      : times_(times), record_(std::move(record)) {}

  int64_t stamp() override;
  bool is_passed(int64_t stamp) const;
  int64_t time_of(int64_t stamp) override;
  // Allows the number to be reused.
  void forget(int64_t stamp) { unused_.push_back(stamp); }

 private:
  // Somewhat more than a full track of a trace has; stamps beyond that have no
  // time of their own.
  static constexpr int64_t kMost = 4 * static_cast<int64_t>(Trace::kMostEvents);

  const LaneTimes& times_;
  const Record record_;
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<int64_t> unused_;
};

class LaneTimes {
 public:
  // `now` reads the clock in which the device's times are expressed.
  LaneTimes(Engine& engine, const std::function<int64_t()>& now);

  LaneClock& add(LaneClock::Record record) {
    return clocks_.emplace_back(*this, std::move(record));
  }
  std::unique_ptr<Event> make_event() const {
    return engine_.make_timed_event();
  }
  // In nanoseconds; the event must have been reached.
  int64_t time_of(const Event& event) const;

 private:
  Engine& engine_;
  const std::unique_ptr<Event> origin_;
  int64_t host_ = 0;  // time at which it was reached
  std::deque<LaneClock> clocks_;
};

}  // namespace canzona
