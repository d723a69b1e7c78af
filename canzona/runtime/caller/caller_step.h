// One rank's step on the caller's memory: weights, gradients, states and slots
// are its memory, and the caller issues the collectives, on any library.
//
//   Lanes lanes(2, [] { return make_cpu_engine(); });
//   CallerStep step(plan, rank, lanes);            // or an Engine
//   const RankSchedule& schedule = step.schedule();
//   … allocate what the schedule asks for: memories, slot_elements …
//   step.bind(memory);
//   step.begin(gradients, steps, rates);
//   step.look();                                 // optional gradient check
//   … all-reduce numbers[0..3] by MAX over all ranks …
//   step.squares();                              // optional: for clip, norm
//   … all-reduce numbers[4..11] by SUM …
//   step.clip(1.0);                              // optional
//   step.judge(true);
//   for (int32_t a = 0; a < schedule.actions.size(); ++a)
//     if (schedule.actions[a].is_compute()) step.run(a);
//     else …                                     // the caller's collective
//   step.end();
//   CallerOutcome outcome = step.outcome();        // may wait for the device
//
// *Bits.* With wire=fp32 every rank's weights and states are bit-identical to
// those of an Optimizer (rules/optimizer.h) on the matrices as whole tensors;
// with wire=bf16 values that are sent are rounded, and values that stay are
// rounded alike. Results depend neither on the layout nor on the number of
// lanes.
//
// *Tensors.* Each tensor has its own step number and may have no gradient: then
// it is left unchanged, including its states. Message sizes do not depend on
// which gradients are missing. All ranks must have gradients of the same
// tensors; look() checks that.
//
// *Devices.* With an asynchronous engine, calls only issue work to its queue,
// in order; only outcome(), bind() and the first steps wait for the device. The
// caller's collectives are ordered in the same queue, and a wait makes the
// queue wait. Gradients may be at new addresses at every step: nothing is
// captured anew.
//
// *Errors.* UsageError names the tensor, or the call that is out of order; the
// current step is then abandoned. One thread at a time. The plan and the
// engines must outlive it. Nothing is allocated after three steps.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "canzona/linalg/lanes.h"
#include "canzona/plan/storage/storage_schedule.h"
#include "canzona/runtime/caller/caller_rank.h"

namespace canzona::runtime {

struct CallerOutcome {
  bool skipped = false;
  int32_t nonfinite_tensor = -1;  // the first with a non-finite value
  bool unlike = false;            // ranks had gradients of different tensors
  // The norm of all gradients, if squares() was called; infinity if one is not
  // finite.
  double norm = 0;
};

// Every replay of a captured step reads and writes these. They lie in the
// host's memory, outlive all replays, and nobody else writes there meanwhile.
struct CallerReplay {
  // The rate of a group: a number, or one that each replay reads from the
  // device's memory.
  struct Rate {
    double number = 0;
    const std::byte* live = nullptr;
    DType dtype = DType::kFp32;  // of `live`; or kFp64
  };

  std::vector<float*> counts;  // by tensor: its updates so far
  std::vector<Rate> rates;     // by group
  int64_t* skipped = nullptr;  // replays that have changed nothing
  int64_t* refused = nullptr;  // those of them that no longer fit
  double limit = 0;            // of the gradient's norm; 0: none
  bool skip = true;            // replays whose gradients are not finite
};

class CallerStep {
 public:
  // All work is issued by the calling thread.
  CallerStep(const StoragePlan& plan, int32_t rank, Engine& engine);
  // The caller sees the order of the first engine; the matrices that are whole
  // here are distributed over all engines, of the same device, by shape.
  CallerStep(const StoragePlan& plan, int32_t rank,
             std::vector<Engine*> engines);
  // Matrices are distributed over the lanes, as CPUs need.
  CallerStep(const StoragePlan& plan, int32_t rank, Lanes& lanes);
  ~CallerStep();

  const RankSchedule& schedule() const;

  // States must hold their initial values, or those of an earlier step, when
  // the first step begins (ScheduledState::initially; fill_initially of
  // rules/optimizer.h writes them). UsageError names what is missing.
  void bind(CallerMemory memory);

  // Changes options of a group for later steps. Throws UsageError if that would
  // change its states.
  void set_options(int32_t group, const RuleOptions& changed);

  // `gradients` and `steps` are by tensor, and this update is number steps[t],
  // from 1; `rates` are learning rates by group. The spans are copied.
  void begin(std::span<const CallerGradient> gradients,
             std::span<const int64_t> steps, std::span<const double> rates);

  // The gradient check, between begin() and the first action. Without any of
  // these calls every gradient is accepted. Each call fills numbers that the
  // caller reduces over all ranks before the next call:
  // numbers[0..3], by MAX: the bits of the largest |g|, or a code of the tensor
  // with a non-finite gradient; a hash of which tensors have gradients and of
  // the groups' rates and options, and its negative.
  void look();
  // numbers[4..11], by SUM: the sum of squares, scaled by the largest.
  void squares();
  // Multiplies gradients by min(1, limit / norm), in place.
  void clip(double limit);
  // Decides whether later actions run. With `skip`, a non-finite gradient
  // leaves everything unchanged; without, it is accepted. If ranks have
  // gradients of different tensors, or other rates or options, everything is
  // left unchanged in any case.
  void judge(bool skip);

  // Runs a compute action. All must be run, in the order of the schedule.
  void run(int32_t action);
  // True if an exchange between members of a team is needed when its tensor has
  // this step number; the same on all ranks. May be called at any time.
  bool needs(int32_t action, int64_t step) const;
  void end();

  // Replaces all calls from begin() to end() while the caller captures the
  // stream of the first engine: each replay of the graph is then a step on
  // these gradients. A replay counts its tensors' updates and takes the rates
  // of that moment; one that no longer fits what was captured (options that
  // call other kernels, a rate that is no number) changes nothing. Requires
  // that this rank shares nothing with others, and one step before.
  void capture(std::span<const CallerGradient> gradients,
               const CallerReplay& replay);
  // Abandons the current step; weights and states may have been partly updated.
  void abandon();

  // The outcome of the last step; waits for the device.
  CallerOutcome outcome();

 private:
  struct Parts;
  CallerStep(const StoragePlan& plan, int32_t rank,
             std::vector<Engine*> engines, Lanes* lanes);
  std::unique_ptr<Parts> parts_;
};

}  // namespace canzona::runtime
