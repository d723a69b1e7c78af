// The computing thread of a simulated rank, as a state machine: each stage
// waits for something or computes, and is followed by the next.
//
//   while (!compute.is_ended() && compute.move()) {}
#pragma once

#include "canzona/sim/background_threads.h"

namespace canzona {

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

}  // namespace canzona
