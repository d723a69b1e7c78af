// Simulates one iteration of training on one rank: forward and backward of all
// micro-batches, overlapping gathers, scatters and reductions, the step, and
// the publication of new parameters.
//
//   IterationWork work = …;                       // or from a plan
//   IterationTime time = simulate_iteration(work);
//   time.seconds; time.hidden_fraction();
//
// All ranks are assumed to be equal and to begin at the same time, so that one
// stands for all. The schedule says what a rank does, and in which order; the
// simulation says how long it takes and what waits for what. A rank has a
// computing thread and three background threads: "gather" (parameters of
// modules), "scatter" (gradients of micro-batches) and "data" (gradients to
// their homes, new parameters from there), each with one operation at a time,
// in the order of need. They share the rank's ports.
//
// docs/simulation.md says what is simulated and what is left out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/zero.h"
#include "canzona/sim/ports.h"

namespace canzona {

// The cost of a module in one micro-batch, and its communication. An empty
// operation is not issued and needs no slot.
struct ModuleWork {
  double forward_seconds = 0;
  double backward_seconds = 0;
  Legs gather = {};   // parameters, before every use
  Legs scatter = {};  // gradients of a micro-batch
  Legs reduce = {};   // gradients to their homes, after the last one
  Legs publish = {};  // new parameters from their homes
  // The fraction of the step after which these may leave; 1 is its end.
  double publish_after = 1;
};
inline constexpr Legs ModuleWork::*kModuleOperations[] = {
    &ModuleWork::gather, &ModuleWork::scatter, &ModuleWork::reduce,
    &ModuleWork::publish};

struct IterationWork {
  std::vector<ModuleWork> modules;
  // The calls of all micro-batches, from the schedule
  // (plan/schedule/iteration.h): they say when each module is used, gathered,
  // scattered and reduced.
  std::vector<TrainerCall> calls;
  double step_seconds = 0;    // including its own exchange, as predicted
  WireBytes step_bytes = {};  // of that exchange; only counted
  double bubble_seconds = 0;  // of a pipeline, before the first use
  int32_t gather_slots = 2;
  int32_t scatter_slots = 2;
  Overlap overlap = Overlap::kBackground;
  Links links = {};
  double copy_bytes_per_second = 0;  // of a background thread; 0: free
  // How much threads that copy and compute slow each other down (ports.h),
  // 0 to 1.
  double slowdown = 0;
  Meetings meetings = {};
};

// Returns the bytes that a rank sends and receives for modules in an iteration.
WireBytes bytes_of_uses(std::span<const ModuleWork> modules,
                        std::span<const ModuleUse> uses);

// Throws UsageError for negative values, unknown modules, and pools too small
// for anything to move.
void check_work(const IterationWork& work);

// The smallest pools that check_work accepts.
int32_t least_gather_slots(const IterationWork& work);
int32_t least_scatter_slots(const IterationWork& work);

struct IterationTime {
  double seconds = 0;
  double compute_seconds = 0;  // forward and backward, including slowdown
  double step_seconds = 0;
  double bubble_seconds = 0;
  // How long compute waited: for parameters; for gradient slots or scatters;
  // for reductions before the step or, without overlap, for everything on the
  // data thread.
  double waited_parameters = 0;
  double waited_gradients = 0;
  double waited_step = 0;
  // How long at least one port of the class was busy.
  double busy_intra_seconds = 0;
  double busy_inter_seconds = 0;
  double busy_seconds = 0;
  // Communication that nothing can hide: the first module's publication and
  // gather, the last one's scatter and reduction, each as if alone.
  double edge_seconds = 0;
  WireBytes bytes = {};  // of this rank, all operations

  double waited() const {
    return waited_parameters + waited_gradients + waited_step;
  }
  // 1 - waited / busy, at least 0; 1 if no link was busy.
  double hidden_fraction() const;
};

// Returns one of several equal iterations: the third.
IterationTime simulate_iteration(const IterationWork& work);

}  // namespace canzona
