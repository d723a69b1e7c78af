// Predicts how long an iteration of a plan takes; nothing is measured.
//
//   IterationPrediction p = predict_iteration(plan, workload);
//   p.time.seconds; p.memory_bytes; p.slow_bytes;
//
// One rank stands for all of its stage: each operation takes as long as on the
// slowest of them, because exchanges end together. In large meshes only a
// sample of ranks is examined. The slowest of a pipeline's first, middle and
// last stage counts, with the bubble of 1F1B before it. The result is
// deterministic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/zero.h"
#include "canzona/sim/cluster.h"
#include "canzona/sim/ports.h"
#include "canzona/sim/workload.h"

namespace canzona::sim {

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
  double compute_seconds = 0;  // forward and backward
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

// Exchanges of forward and backward other than sums over tp: tokens of experts,
// and activations between pipeline stages.
//
// A layer with experts has two all-to-alls over the ep ranks in forward, to the
// experts and back, and two in backward, each with all tokens times the experts
// per token. Compute waits for them. Between stages, activations go forward and
// their gradients back, from each rank to its counterpart.

// The time of one all-to-all; 0 if ep = 1 or the width of activations is not
// known.
double token_exchange_seconds(const Plan& plan, const Workload& workload);
// Adds them to the passes, by module.
void add_token_exchanges(const Plan& plan, const Workload& workload,
                         std::vector<PassSeconds>& modules);

// The time to send the activations of a micro-batch from one stage to the next;
// 0 if pp = 1 or the width of activations is not known.
double stage_send_seconds(const Plan& plan, const Workload& workload);

// Returns how much longer a micro-batch takes in each direction because of
// sends between stages. 1F1B has as many micro-batches in flight as there are
// stages behind, so a round trip through n stages with 2 (n - 1) sends is
// shared by n micro-batches.
double exposed_sends(const Plan& plan, const Workload& workload);

// How long every module computes in a micro-batch, on the slowest card, with
// all exchanges that compute waits for except sends between stages. Uses only
// mesh, model and options of the plan.
std::vector<PassSeconds> pass_seconds(const Plan& plan,
                                      const Workload& workload);
// Returns the warm-up and cool-down of 1F1B: all other stages' share of one
// micro-batch, each as slow as the slowest, and what they send each other.
double bubble_seconds(const Plan& plan, const Workload& workload,
                      const std::vector<PassSeconds>& passes);

// What micro-batches of a size take on any stage.
struct MicroBatch {
  std::vector<PassSeconds> passes;  // by module
  double bubble_seconds = 0;
  double exposed_send = 0;
  int32_t num_stages = 1;
};
// Uses only mesh, model and options of the plan.
MicroBatch micro_batch_of(const Plan& plan, const Workload& workload);
// The stages that are simulated: the first, a middle one and the last.
std::vector<int32_t> stages_to_look_at(const Mesh& mesh);

// The work of a rank of a stage, with each operation as on the slowest of its
// ranks.
IterationWork plan_iteration(const Plan& plan, const Workload& workload,
                             int32_t stage);

struct IterationPrediction {
  IterationTime time;
  int32_t stage = 0;
  int64_t memory_bytes = 0;  // largest of the stage's ranks, or of all ranks
  // Bytes sent in an iteration by the rank that sends most between nodes:
  // between nodes, and inside its own.
  int64_t slow_bytes = 0;
  int64_t fast_bytes = 0;
};

// Predictions for the first, a middle and the last stage: each kind of rank
// once.
std::vector<IterationPrediction> predict_stages(const Plan& plan,
                                                const Workload& workload);

// Iterations of more micro-batches are extrapolated from this many.
inline constexpr int64_t kMostSimulated = 32;

// What iterations of a stage have in common, whatever their micro-batches.
struct StageIteration {
  int32_t stage = 0;
  // One micro-batch, each operation as on the slowest rank, without compute.
  IterationWork work = {};
  struct RankBytes {
    WireBytes of_micro_batch = {};
    WireBytes of_step = {};
  };
  std::vector<RankBytes> ranks = {};  // those that were examined
  int64_t memory_bytes = 0;           // of the fullest rank

  IterationWork with(const MicroBatch& batch, int64_t num_micro_batches) const;
  IterationPrediction predict(const MicroBatch& batch,
                              int64_t num_micro_batches) const;
};
// Returns the stages that are simulated; `costs` are predict(plan).
std::vector<StageIteration> stage_iterations(
    const Plan& plan, const Workload& workload,
    const std::vector<RankCost>& costs);
// Returns the slowest, with the largest memory and bytes of any.
IterationPrediction slowest_of_stages(
    const std::vector<IterationPrediction>& stages);

// The slowest stage, with the largest memory of any rank and bytes of any
// stage.
IterationPrediction predict_iteration(const Plan& plan,
                                      const Workload& workload);

// Predicts an iteration of a plan on a cluster by simulating one rank of each
// kind.
//
//   ClusterPrediction p = predict_cluster(plan, workload, cluster);
//   p.seconds(); p.tokens_per_second(); p.step_seconds();
//
// Kinds are the stages of a pipeline: the first, a middle one and the last. For
// each, the slowest card with the longest sequences is simulated, on the links
// of the rank that sends most: no rank finishes before it. Every number is a
// prediction. The result is deterministic.

struct ClusterPrediction {
  std::vector<IterationPrediction> kinds;  // by stage
  size_t slowest = 0;                      // index of the slowest
  double tokens = 0;                       // per iteration, on all ranks
  double model_flops = 0;    // of forward and backward, without recomputation
  double ranks = 0;          // in the world
  double card_flops = 0;     // per second and card
  double slowest_card = 1;   // its time relative to the mean
  double longest_batch = 1;  // length of its sequences relative to the mean

  const IterationTime& time() const { return kinds[slowest].time; }
  double seconds() const { return time().seconds; }
  double step_seconds() const { return time().step_seconds; }
  double tokens_per_second() const { return tokens / seconds(); }
  // Flops per second and card, and their fraction of the card's rate.
  double flops_per_card() const { return model_flops / (ranks * seconds()); }
  double used_share() const { return flops_per_card() / card_flops; }
  int64_t memory_bytes() const;
};

// The workload must be that of the cluster (apply()).
ClusterPrediction predict_cluster(const Plan& plan, const Workload& workload);

// Returns the plan with rules at a card's own rate if no table was measured.
Plan at_rate(Plan plan, double flops_per_second);

// The operations of one rank under a plan, module by module.
//
//   for (const ModuleWork& m : rank_transfers(plan, workload, rank).own) …
//
// Bytes are the plan's own; messages are those of the runtime's pairwise
// exchanges: one per peer and, for sums, per segment. Compute times are left at
// 0.

// Runs of homes differ. A rank's share of a sum and of new parameters follows
// from its own run, or from the longest of all, because no rank continues
// before the home that has most.
struct RankTransfers {
  std::vector<ModuleWork> own;
  std::vector<ModuleWork> longest;
};
RankTransfers rank_transfers(const Plan& plan, const Workload& workload,
                             int32_t world_rank);

}  // namespace canzona::sim
