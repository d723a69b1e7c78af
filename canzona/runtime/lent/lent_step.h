// One rank's step on memory of the caller's: weights, gradients, states and
// slots are lent, and collectives are issued by the caller, on any library.
//
//   Lanes lanes(2, [] { return make_cpu_engine(); });
//   LentStep step(plan, rank, lanes);            // or an Engine
//   const PlacedSchedule& schedule = step.schedule();
//   … schedule says which memory it wants: memories, slot_elements …
//   step.bind(memory);
//   step.begin(gradients, steps, rates);
//   step.look();                                 // optional, as a whole
//   … all-reduce numbers[0..3] by MAX over all ranks …
//   step.squares();                              // optional: for clip, norm
//   … all-reduce numbers[4..11] by SUM …
//   step.clip(1.0);                              // optional
//   step.judge(true);
//   for (int32_t a = 0; a < schedule.actions.size(); ++a)
//     if (schedule.actions[a].is_compute()) step.run(a);
//     else …                                     // the caller's, on the slots
//   step.end();
//   LentOutcome outcome = step.outcome();        // may wait for a device
//
// *Bits.* With wire=fp32 every rank's weights and states become, bit for bit,
// those of an Optimizer (rules/optimizer.h) on the matrices as whole tensors;
// with wire=bf16 what moves is rounded, and what stays is rounded alike. So
// neither the layout nor the number of lanes shows in a result.
//
// *Tensors.* Each has its own step number and may have no gradient: then it is
// left alone, states too. Messages have the same size whatever is missing. All
// ranks must have the gradients of the same tensors; look() tells.
//
// *Devices.* Where an engine works later than it is told to, calls only issue
// to its line, in order; no call but outcome(), bind() and the first steps
// waits for the device. The caller's collectives take their place in the same
// line, and a wait makes the line wait. Gradients may lie elsewhere at every
// step: nothing is captured anew.
//
// *Errors.* UsageError names the tensor, or the call that is out of order; the
// step that was begun is given up then. One thread at a time. The plan and the
// engines outlive it. After three steps nothing is allocated.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "canzona/linalg/lanes.h"
#include "canzona/plan/placed/placed_schedule.h"
#include "canzona/runtime/lent/lent_rank.h"

namespace canzona {

struct LentOutcome {
  bool skipped = false;
  int32_t nonfinite_tensor = -1;  // the first with a number that is not finite
  bool unlike = false;            // ranks had gradients of different tensors
  // Of all gradients, if squares() was called; infinity if one is not finite.
  double norm = 0;
};

class LentStep {
 public:
  // Work is issued by the calling thread alone.
  LentStep(const PlacedPlan& plan, int32_t rank, Engine& engine);
  // The first engine is the one whose order the caller sees; the others, of the
  // same device, take shapes of matrices that lie here whole, side by side.
  LentStep(const PlacedPlan& plan, int32_t rank, std::vector<Engine*> engines);
  // Matrices are shared out among the lanes, as CPUs need it.
  LentStep(const PlacedPlan& plan, int32_t rank, Lanes& lanes);
  ~LentStep();

  const PlacedSchedule& schedule() const;

  // States must hold their initial values, or those of an earlier step, when
  // the first step begins (PlacedState::initially; fill_initially of
  // rules/optimizer.h writes them). UsageError names what is missing.
  void bind(LentMemory memory);

  // Options of a group that are to change, for the steps to come. UsageError if
  // states would be others.
  void set_options(int32_t group, const RuleOptions& changed);

  // `gradients` and `steps` by tensor, this update being number steps[t], from
  // 1; `rates` by group: learning rates. The spans are copied.
  void begin(std::span<const LentGradient> gradients,
             std::span<const int64_t> steps, std::span<const double> rates);

  // The look at gradients, between begin() and the first action. Without any of
  // these calls every gradient passes. Each fills numbers that the caller
  // reduces over all ranks before the next call:
  // numbers[0..3], by MAX: the bits of the largest |g|, or a code of the tensor
  // that has one that is not finite; a hash of which tensors have gradients,
  // and its negative.
  void look();
  // numbers[4..11], by SUM: the sum of squares, scaled by the largest.
  void squares();
  // Multiplies gradients by min(1, limit / norm), in place.
  void clip(double limit);
  // Decides what all later actions obey. `skip`: a gradient that is not finite
  // leaves everything as it was; else it passes. Gradients that are unlike
  // leave everything as it was in any case.
  void judge(bool skip);

  // Compute actions of the schedule, in its order; none may be left out.
  void run(int32_t action);
  void end();
  // Gives up a step that was begun; weights and states may be those of a part
  // of it.
  void abandon();

  // Tells what became of the last step; waits for a device.
  LentOutcome outcome();

 private:
  struct Parts;
  LentStep(const PlacedPlan& plan, int32_t rank, std::vector<Engine*> engines,
           Lanes* lanes);
  std::unique_ptr<Parts> parts_;
};

}  // namespace canzona
