// One iteration of training on one rank, simulated: forward and backward of
// all micro-batches, gathers, scatters and reductions beside them, the step,
// and the publishing of new parameters.
//
//   IterationWork work = …;                       // or from a plan
//   IterationTime time = simulate_iteration(work);
//   time.seconds; time.hidden_fraction();
//
// All ranks are taken to be alike and to begin alike, so that one stands for
// all. A rank has a thread that computes and three in the background: "gather"
// (parameters of modules), "scatter" (gradients of micro-batches) and "data"
// (gradients to their homes, new parameters from there), each with one
// operation at a time, in the order of need. They share the rank's ports.
//
// What is simulated and what is left out: docs/simulation.md. Values; any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/plan/zero.h"
#include "canzona/sim/transfer.h"

namespace canzona {

// What one micro-batch costs a module, and what moves for it. An empty
// transfer is not issued and needs no slot.
struct ModuleWork {
  double forward_seconds = 0;
  double backward_seconds = 0;
  Transfer gather = {};   // parameters, before every use
  Transfer scatter = {};  // gradients of a micro-batch
  Transfer reduce = {};   // gradients to their homes, after the last one
  Transfer publish = {};  // new parameters from their homes
  // What follows each of them where groups go in two levels
  // (plan/schedule/rank_group.h).
  Transfer gather_inside = {};
  Transfer scatter_across = {};
  Transfer reduce_across = {};
  Transfer publish_inside = {};

  bool reduces() const { return !reduce.empty() || !reduce_across.empty(); }
  bool publishes() const { return !publish.empty() || !publish_inside.empty(); }
};

enum class PassKind { kForward, kBackward };

struct ModuleUse {
  int32_t module = 0;
  PassKind pass = PassKind::kForward;
  // Read by the module of the next use (a tied head): no compute of its own,
  // kept as long as that one, its gradient not complete yet.
  bool beside = false;
  friend bool operator==(const ModuleUse&, const ModuleUse&) = default;
};

struct IterationWork {
  std::vector<ModuleWork> modules;
  std::vector<ModuleUse> uses;  // of one micro-batch, in order
  int64_t num_micro_batches = 1;
  double step_seconds = 0;    // with its own exchange, as predicted
  WireBytes step_bytes = {};  // of that exchange: counted only
  double bubble_seconds = 0;  // of a pipeline, before the first use
  int32_t gather_slots = 2;
  int32_t scatter_slots = 2;
  Overlap overlap = Overlap::kBackground;
  Links links = {};
  double copy_bytes_per_second = 0;  // of a background thread; 0: free
  // Of threads that copy and compute, to each other (processor.h), 0 to 1.
  double slowdown = 0;
  Meetings meetings = {};
};

// Forward through the modules and back again. Tied: the first is also used
// beside the last.
std::vector<ModuleUse> uses_in_order(const std::vector<int32_t>& modules,
                                     bool tied = false);

// What a rank sends and receives in an iteration.
WireBytes iteration_bytes(const IterationWork& work);

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
  // What compute waited for: parameters; slots for gradients, or scatters;
  // reductions before the step, or, without overlap, all of the data thread's.
  double waited_parameters = 0;
  double waited_gradients = 0;
  double waited_step = 0;
  // At least one port of the class was busy.
  double busy_intra_seconds = 0;
  double busy_inter_seconds = 0;
  double busy_seconds = 0;
  // What nothing can hide: the first module's publishing and gather, the last
  // one's scatter and reduction, each as if alone.
  double edge_seconds = 0;
  WireBytes bytes = {};  // of this rank, all operations

  double waited() const {
    return waited_parameters + waited_gradients + waited_step;
  }
  // 1 - waited / busy, not below 0; 1 where no link was busy.
  double hidden_fraction() const;
  double edge_fraction() const {
    return seconds > 0 ? edge_seconds / seconds : 0;
  }
};

// An iteration among equal ones: the third.
IterationTime simulate_iteration(const IterationWork& work);

}  // namespace canzona
