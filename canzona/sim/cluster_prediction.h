// An iteration of a plan on a cluster: one rank of each kind, simulated.
//
//   ClusterPrediction p = predict_cluster(plan, workload, cluster);
//   p.seconds(); p.tokens_per_second(); p.step_seconds();
//
// Kinds are the stages of a pipeline: the first, a middle one and the last. Of
// each, the slowest card with the longest sequences is simulated, on the links
// of the rank that has most to send: nobody ends before it. Every number is
// predicted. Deterministic; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/sim/cluster.h"
#include "canzona/sim/plan_iteration.h"

namespace canzona {

struct ClusterPrediction {
  std::vector<IterationPrediction> kinds;  // by stage
  size_t slowest = 0;                      // of these
  double tokens = 0;                       // of an iteration, on all ranks
  double model_flops = 0;    // of forward and backward, nothing recomputed
  double ranks = 0;          // of the world
  double card_flops = 0;     // per second, of one card
  double slowest_card = 1;   // the time it takes, of the mean
  double longest_batch = 1;  // the length of its sequences, of the mean

  const IterationTime& time() const { return kinds[slowest].time; }
  double seconds() const { return time().seconds; }
  double step_seconds() const { return time().step_seconds; }
  double tokens_per_second() const { return tokens / seconds(); }
  // Flops per second and card, and their share of what a card reaches.
  double flops_per_card() const { return model_flops / (ranks * seconds()); }
  double used_share() const { return flops_per_card() / card_flops; }
  int64_t memory_bytes() const;
};

// The workload is that of the cluster (apply()).
ClusterPrediction predict_cluster(const Plan& plan, const Workload& workload);

// The plan with rules at a card's own rate, where no table was measured.
Plan at_rate(Plan plan, double flops_per_second);

}  // namespace canzona
