// The three background threads of a simulated rank. Each move() starts what can
// start and returns whether it started anything.
//
//   gather.reach(position + 2);         // main: one ahead
//   if (gather.has(position)) …
//   scatter.hand_over(module, true);    // of the last micro-batch
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "canzona/sim/iteration_state.h"

namespace canzona {

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

}  // namespace canzona
