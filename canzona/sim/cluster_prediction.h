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
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/sim/cluster.h"
#include "canzona/sim/plan_iteration.h"

namespace canzona {

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
