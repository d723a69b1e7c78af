// The threads of a simulated rank and the state they share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/sim/plan_iteration.h"
#include "canzona/sim/ports.h"

namespace canzona::sim {

// A simulated background thread that executes one operation at a time. It packs
// and sends the first part; when a part has arrived it sends the next one and
// copies the one that has arrived meanwhile.
//
//   Issuer gather(events, ports, is_computing, copy_bytes_per_second);
//   if (!gather.is_busy()) gather.start(transfer, [&] { … });
//
// One thread at a time.
class Issuer {
 public:
  // `is_computing` says what the computing thread does; it must outlive this.
  Issuer(EventQueue& events, Ports& ports, const bool& is_computing,
         double copy_bytes_per_second, const Meetings& meetings = {})
      : events_(events),
        ports_(ports),
        is_computing_(is_computing),
        copy_bytes_per_second_(copy_bytes_per_second),
        meetings_(meetings) {}

  bool is_busy() const { return is_busy_; }

  // Requires that it is not busy; `done` is called at the end.
  void start(const Transfer& transfer, std::function<void()> done);

 private:
  void post();
  void work(double seconds, void (Issuer::*then)());
  void begin_part();
  void await();
  void meet();
  void arrived();
  void finish();

  EventQueue& events_;
  Ports& ports_;
  const bool& is_computing_;
  double copy_bytes_per_second_;
  Meetings meetings_;
  bool is_busy_ = false;
  PartSeconds part_{};  // the part on the wire
  CopySeconds copies_;
  int64_t num_to_post_ = 0;
  double arrival_ = 0;
  std::function<void()> done_;
};

// State shared by the threads of a simulated iteration: time, ports, whether
// compute is going on, and the record of the current iteration.
struct IterationState {
  explicit IterationState(const IterationWork& the_work)
      : work(the_work), uses(uses_of(the_work.calls)), ports(the_work.links) {}
  IterationState(const IterationState&) = delete;
  IterationState& operator=(const IterationState&) = delete;

  const ModuleWork& module(int32_t number) const {
    return work.modules[index(number)];
  }
  bool gathers(size_t position) const {
    return !module(uses[position].module).gather.empty();
  }

  const IterationWork& work;
  const std::vector<ModuleUse> uses;  // of all micro-batches; positions index
                                      // it
  EventQueue events;
  Ports ports;
  bool is_computing = false;
  double begin = 0;  // of the iteration
  IterationTime record;
};

// An issuer that also counts bytes.
class CountedIssuer {
 public:
  explicit CountedIssuer(IterationState& state)
      : state_(state),
        issuer_(state.events, state.ports, state.is_computing,
                state.work.copy_bytes_per_second, state.work.meetings) {}

  bool is_busy() const { return issuer_.is_busy(); }

  // Either leg may be empty.
  template <class Done>
  void start(const Legs& legs, Done done) {
    if (legs.second.empty()) return start_leg(legs.first, done);
    if (legs.first.empty()) return start_leg(legs.second, done);
    start_leg(legs.first,
              [this, &legs, done] { start_leg(legs.second, done); });
  }

 private:
  template <class Done>
  void start_leg(const Transfer& transfer, Done done) {
    state_.record.bytes += transfer.bytes;
    issuer_.start(transfer, done);
  }

  IterationState& state_;
  Issuer issuer_;
};

// The three background threads of a simulated rank. Each move() starts what can
// start and returns whether it started anything.
//
//   gather.reach(position + 2);         // main: one ahead
//   if (gather.has(position)) …
//   scatter.hand_over(module, true);    // of the last micro-batch

// Moves gradients to their homes and new parameters from there, as they come.
class SimulatedData {
 public:
  explicit SimulatedData(IterationState& state);

  void reduce(int32_t module);
  // Publishes all modules, in the order of their first use, each as soon as it
  // may.
  void publish();
  void may_leave(int32_t module) { may_leave_[index(module)] = true; }

  bool is_reducing() const { return num_reducing_ > 0; }
  bool is_publishing() const { return num_publishing_ > 0; }
  bool is_published(int32_t module) const { return published_[index(module)]; }
  bool move();

 private:
  struct Waiting {
    bool publishes = false;
    int32_t module = 0;
  };

  void begin_publishing(int32_t module);

  IterationState& state_;
  CountedIssuer issuer_;
  std::deque<Waiting> waiting_;
  std::vector<bool> published_, may_leave_;
  int num_reducing_ = 0;
  int num_publishing_ = 0;
};

// Gathers the parameters of the uses, in order; each keeps its slot until it is
// released.
class SimulatedGather {
 public:
  SimulatedGather(IterationState& state, const SimulatedData& data)
      : state_(state), data_(data), issuer_(state) {}

  void begin();  // of an iteration
  // Allows positions below this one to be gathered.
  void reach(size_t position) {
    reach_ = std::min(position, state_.uses.size());
  }
  bool has(size_t position) const {
    return !state_.gathers(position) || position < num_gathered_;
  }
  void release(size_t position) {
    if (state_.gathers(position)) --slots_taken_;
  }
  bool move();

 private:
  IterationState& state_;
  const SimulatedData& data_;
  CountedIssuer issuer_;
  size_t reach_ = 0;
  size_t next_ = 0;
  size_t num_gathered_ = 0;
  int32_t slots_taken_ = 0;
};

// Scatters the gradients of micro-batches, in the order in which they were
// handed over.
class SimulatedScatter {
 public:
  SimulatedScatter(IterationState& state, SimulatedData& data)
      : state_(state),
        data_(data),
        issuer_(state),
        is_open_(state.work.modules.size(), false) {}

  // True if there is a slot for the module's gradient, or none is needed any
  // more.
  bool has_slot(int32_t module) const;
  void open(int32_t module);
  // `last` says that it is of the last micro-batch, after which it goes on to
  // its home.
  void hand_over(int32_t module, bool last);
  bool is_scattering() const { return num_unfinished_ > 0; }
  bool move();

 private:
  struct Waiting {
    int32_t module = 0;
    bool last = false;
  };

  IterationState& state_;
  SimulatedData& data_;
  CountedIssuer issuer_;
  std::vector<bool> is_open_;
  std::deque<Waiting> waiting_;
  int32_t slots_taken_ = 0;
  int num_unfinished_ = 0;
};

// The computing thread of a simulated rank, as a state machine: each stage
// waits for something or computes, and is followed by the next.
//
//   while (!compute.is_ended() && compute.move()) {}
class SimulatedCompute {
 public:
  SimulatedCompute(IterationState& state, SimulatedData& data,
                   SimulatedGather& gather, SimulatedScatter& scatter,
                   int num_iterations);

  // True when the last iteration is over; state.record is then that
  // iteration's.
  bool is_ended() const { return stage_ == Stage::kEnded; }
  // Leaves the stage if it is over; returns true if it did.
  bool move();

 private:
  enum class Stage {
    kBegun,       // no overlap: waits for all new parameters
    kBubble,      // idle
    kParameters,  // waits for the parameters of a use
    kSlot,        // waits for a slot for its gradient
    kCompute,
    kHandOver,   // main: waits for the previous scatter
    kScattered,  // no overlap: waits for this scatter and its reduction
    kScatters,   // waits for all scatters
    kReductions,
    kStep,
    kEnded,
  };

  bool is_over() const;
  bool is_waiting_over() const;
  void account();
  void leave();
  void enter(Stage stage);
  void work_for(double seconds);

  void begin_iteration();
  void begin_bubble();
  void begin_use();
  void begin_compute();
  void end_compute();
  void hand_over();
  void end_use();
  void begin_step();
  void end_step();
  void finish_record();

  const ModuleUse& current() const { return state_.uses[position_]; }

  IterationState& state_;
  SimulatedData& data_;
  SimulatedGather& gather_;
  SimulatedScatter& scatter_;
  int num_left_;  // iterations that have not ended
  Stage stage_ = Stage::kBegun;
  double stage_begin_ = 0;
  bool is_worked_ = false;  // the stage's compute is done
  size_t position_ = 0;
  size_t first_held_ = 0;  // uses from here to position_ hold slots
};

}  // namespace canzona::sim
