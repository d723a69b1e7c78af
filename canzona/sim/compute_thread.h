// The computing thread of a simulated rank, as stages: each waits for something
// or works, and leaving it leads to the next.
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

  // The last iteration is over; state.record is that one's.
  bool is_ended() const { return stage_ == Stage::kEnded; }
  // Leaves the stage if it is over, and tells whether it did.
  bool move();

 private:
  enum class Stage {
    kBegun,       // without overlap: all new parameters have come
    kBubble,      // idle
    kParameters,  // of a use have come
    kSlot,        // for its gradient is free
    kCompute,
    kHandOver,   // main: the scatter before this one has ended
    kScattered,  // without overlap: this one has, and its reduction
    kScatters,   // all have ended
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
  bool is_worked_ = false;  // what the stage computes
  size_t position_ = 0;
  size_t first_held_ = 0;  // uses from here to position_ keep their slots
};

}  // namespace canzona
