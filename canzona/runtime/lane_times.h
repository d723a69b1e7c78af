// When the lanes of a rank came where, by the device's own clock: for traces,
// and for how long compute waited. For the sources of this room.
//
//   LaneTimes times(engine, host_now);
//   LaneClock& clock = times.add([&](Event& event) { lane.record_in(event); });
//   const int64_t before = clock.stamp();   // a timed event of the lane
//   …
//   clock.time_of(before);                  // once it is passed
//
// The two clocks are laid over each other once, when the device has nothing to
// do. One thread at a time; the engine outlives it, and so do lanes.
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
  // The number may be given again.
  void forget(int64_t stamp) { unused_.push_back(stamp); }

 private:
  // As many as a full track of a trace has, and then some; beyond them points
  // have no time of their own.
  static constexpr int64_t kMost = 4 * static_cast<int64_t>(Trace::kMostEvents);

  const LaneTimes& times_;
  const Record record_;
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<int64_t> unused_;
};

class LaneTimes {
 public:
  // `now`: of the clock that the device's times are told in.
  LaneTimes(Engine& engine, const std::function<int64_t()>& now);

  LaneClock& add(LaneClock::Record record) {
    return clocks_.emplace_back(*this, std::move(record));
  }
  std::unique_ptr<Event> make_event() const {
    return engine_.make_timed_event();
  }
  // Nanoseconds; of an event that is reached.
  int64_t time_of(const Event& event) const;

 private:
  Engine& engine_;
  const std::unique_ptr<Event> origin_;
  int64_t host_ = 0;  // when it was reached
  std::deque<LaneClock> clocks_;
};

}  // namespace canzona
