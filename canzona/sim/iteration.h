// One iteration of training on one rank, simulated: forward and backward of
// all micro-batches, gathers, scatters and reductions beside them, the step,
// and the publishing of new parameters.
//
//   IterationWork work = …;                       // or from a plan
//   IterationTime time = simulate_iteration(work);
//   time.seconds; time.hidden_fraction();
//
// All ranks are taken to be alike and to begin alike, so that one stands for
// all. The schedule says what a rank does, and in which order; here is said how
// long it takes and what waits for what. A rank has a thread that computes and
// three in the background: "gather" (parameters of modules), "scatter"
// (gradients of micro-batches) and "data" (gradients to their homes, new
// parameters from there), each with one operation at a time, in the order of
// need. They share the rank's ports.
//
// docs/simulation.md says what is simulated and what is left out. Values; any
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/zero.h"
#include "canzona/sim/transfer.h"

namespace canzona {

// The cost of a module in one micro-batch, and what moves for it. An empty
// operation is not issued and needs no slot.
struct ModuleWork {
  double forward_seconds = 0;
  double backward_seconds = 0;
  Legs gather = {};   // parameters, before every use
  Legs scatter = {};  // gradients of a micro-batch
  Legs reduce = {};   // gradients to their homes, after the last one
  Legs publish = {};  // new parameters from their homes
  // The share of the step after which these may leave: 1 is its end.
  double publish_after = 1;
};
inline constexpr Legs ModuleWork::*kModuleOperations[] = {
    &ModuleWork::gather, &ModuleWork::scatter, &ModuleWork::reduce,
    &ModuleWork::publish};

struct IterationWork {
  std::vector<ModuleWork> modules;
  // The calls of all micro-batches, as the schedule has them
  // (plan/schedule/iteration.h): they say which module is used, gathered,
  // scattered and reduced when.
  std::vector<TrainerCall> calls;
  double step_seconds = 0;    // with its own exchange, as predicted
  WireBytes step_bytes = {};  // of that exchange: counted only
  double bubble_seconds = 0;  // of a pipeline, before the first use
  int32_t gather_slots = 2;
  int32_t scatter_slots = 2;
  Overlap overlap = Overlap::kBackground;
  Links links = {};
  double copy_bytes_per_second = 0;  // of a background thread; 0: free
  // The slowdown of threads that copy and compute by each other (processor.h),
  // 0 to 1.
  double slowdown = 0;
  Meetings meetings = {};
};

// Returns what a rank sends and receives for modules in an iteration.
WireBytes bytes_of_uses(std::span<const ModuleWork> modules,
                        std::span<const ModuleUse> uses);

// UsageError for what is negative, unknown modules, and pools in which nothing
// could move.
void check_work(const IterationWork& work);

// The smallest pools that check_work lets pass.
int32_t least_gather_slots(const IterationWork& work);
int32_t least_scatter_slots(const IterationWork& work);

struct IterationTime {
  double seconds = 0;
  double compute_seconds = 0;  // forward and backward, slowed down if so
  double step_seconds = 0;
  double bubble_seconds = 0;
  // The time that compute waited for parameters; for slots for gradients, or
  // scatters; for reductions before the step, or, without overlap, all of the
  // data thread's.
  double waited_parameters = 0;
  double waited_gradients = 0;
  double waited_step = 0;
  // At least one port of the class was busy.
  double busy_intra_seconds = 0;
  double busy_inter_seconds = 0;
  double busy_seconds = 0;
  // Communication that nothing can hide: the first module's publishing and
  // gather, the last one's scatter and reduction, each as if alone.
  double edge_seconds = 0;
  WireBytes bytes = {};  // of this rank, all operations

  double waited() const {
    return waited_parameters + waited_gradients + waited_step;
  }
  // 1 - waited / busy, not below 0; 1 where no link was busy.
  double hidden_fraction() const;
};

// An iteration among equal ones: the third.
IterationTime simulate_iteration(const IterationWork& work);

}  // namespace canzona
