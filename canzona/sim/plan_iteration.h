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
#include "canzona/sim/iteration.h"
#include "canzona/sim/workload.h"

namespace canzona {

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

}  // namespace canzona
