// Engines seen by communicators: how collectives access device memory, on which
// lanes they run, and when a lane has passed a point. This is where comm, which
// knows no devices, and linalg, which knows no collectives, meet.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "canzona/comm/transport.h"
#include "canzona/comm/wire_ops.h"
#include "canzona/linalg/engine.h"
#include "canzona/linalg/memory.h"
#include "canzona/trace/trace.h"

namespace canzona::runtime {

// Tells a communicator how to access device memory.
//
//   const EngineWireOps ops(memory_ops("cuda"));
//   auto dp = world.split(t, d, "dp", {}, &ops);
//
// If an engine makes lanes (Engine::make_lane), collectives run on one of them,
// and compute runs on the engine's own:
//
//   EngineLane sums(engine.make_lane());
//   ComputeLane compute(engine);
//   sums.wait_for(mark_of_compute);
//
// Pieces are aligned to their elements (8 bytes for elements of two words). The
// owner of the memory waits for its engines before passing pieces. Callable
// from any number of threads.
class EngineWireOps : public WireOps {
 public:
  // `memory` must outlive it.
  explicit EngineWireOps(const MemoryOps& memory) : memory_(memory) {}

  bool is_host() const override { return memory_.is_host(); }
  std::byte* allocate(int64_t bytes) const override {
    return memory_.allocate(bytes);
  }
  void release(std::byte* memory) const override { memory_.release(memory); }
  void copy(std::byte* to, const std::byte* from,
            int64_t bytes) const override {
    memory_.copy(to, from, bytes);
  }
  void add(Reduction reduction, std::byte* sum, const std::byte* a,
           const std::byte* b, int64_t count) const override;
  void narrow(Reduction reduction, std::byte* wire, const std::byte* from,
              int64_t count) const override;
  void widen(Reduction reduction, std::byte* to, const std::byte* wire,
             int64_t count) const override;
  bool sum_at_once(Reduction reduction,
                   std::span<const std::byte* const> pieces, int64_t count,
                   std::byte* sum) const override;
  bool sums_in_place(Reduction reduction, int num_pieces) const override;
  void sum_in_place(Reduction reduction,
                    std::span<const std::byte* const> pieces, int64_t count,
                    std::byte* sum) const override;

 private:
  void join_in_place(Reduction reduction,
                     std::span<const std::byte* const> pieces, int64_t count,
                     std::byte* sum) const;

  const MemoryOps& memory_;
};

// Its marks are events of the device.
class EngineLane final : public Lane {
 public:
  explicit EngineLane(std::unique_ptr<MemoryLane> lane)
      : lane_(std::move(lane)), ops_(lane_->ops()) {}

  const WireOps& ops() const override { return ops_; }
  std::unique_ptr<Mark> make_mark() const override;
  void record(Mark& mark) override;
  void wait_for(const Mark& mark) override;
  LaneWord* make_word() override { return &lane_->make_word(); }
  void write(LaneWord& word, uint32_t value) override {
    lane_->write(word, value);
  }
  void wait_for(const LaneWord& word, uint32_t value) override {
    lane_->wait_until(word, value);
  }
  void* native() override { return lane_->native(); }
  void record_in(Event& event) { lane_->record_in(event); }

 private:
  std::unique_ptr<MemoryLane> lane_;
  EngineWireOps ops_;
};

// No collectives are issued here: ops() must not be called.
class ComputeLane final : public Lane {
 public:
  // The engine must outlive it.
  explicit ComputeLane(Engine& engine) : engine_(engine) {}

  const WireOps& ops() const override;
  std::unique_ptr<Mark> make_mark() const override;
  void record(Mark& mark) override;
  using Lane::wait_for;
  void wait_for(const Mark& mark) override;

 private:
  Engine& engine_;
};

// Times of points in the lanes of a rank, by the device's own clock: for
// traces, and to measure how long compute waited.
//
//   LaneTimes times(engine, host_now);
//   LaneClock& clock = times.add([&](Event& event) { lane.record_in(event); });
//   const int64_t before = clock.stamp();   // a timed event of the lane
//   …
//   clock.time_of(before);                  // once it has passed
//
// The host and device clocks are aligned once, while the device is idle. One
// thread at a time; the engine and the lanes must outlive it.

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

}  // namespace canzona::runtime
