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
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/sim/cluster.h"
#include "canzona/sim/iteration.h"
#include "canzona/sim/workload.h"

namespace canzona {

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

// The slowest of them, with the largest memory and bytes of any.
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

}  // namespace canzona
