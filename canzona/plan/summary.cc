#include "canzona/plan/summary.h"

#include <algorithm>

#include "canzona/plan/loads.h"

namespace canzona {

PlanSummary summarize(const Plan& plan, const std::vector<RankCost>& ranks) {
  PlanSummary s;
  s.makespan = makespan(plan, ranks);
  s.bound = makespan_bound(plan, s.makespan);
  double work = 0;
  for (const MatrixCost& cost : plan.costs) {
    work += static_cast<double>(cost.every_step.value()) * plan.period +
            static_cast<double>(cost.refresh.value());
  }
  const auto world = static_cast<double>(ranks.size());
  s.mean = work * plan.num_replicas() / world;
  double memory = 0;
  for (const RankCost& rank : ranks) {
    s.idle_ranks += rank.num_matrices == 0;
    s.bytes_per_rank_max =
        std::max(s.bytes_per_rank_max, Bytes(rank.bytes_sent()));
    s.memory_per_rank_max =
        std::max(s.memory_per_rank_max, rank.memory.total());
    memory += static_cast<double>(rank.memory.total().value());
    s.step_seconds_mean = std::max(s.step_seconds_mean, rank.step_seconds_mean);
    s.step_seconds_worst =
        std::max(s.step_seconds_worst, rank.step_seconds_worst);
  }
  s.memory_per_rank_mean = memory / world;
  return s;
}

}  // namespace canzona
