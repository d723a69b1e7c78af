#include "canzona/plan/summary.h"

#include <algorithm>

#include "canzona/plan/loads.h"

namespace canzona {

namespace {

// Over a period, on all ranks.
double total_work(const Plan& plan) {
  double work = 0;
  for (const Plan& part : plan.parts) work += total_work(part);
  if (!plan.parts.empty()) return work;
  for (const MatrixCost& cost : plan.costs) {
    work += static_cast<double>(cost.every_step.value()) * plan.period +
            static_cast<double>(cost.refresh.value());
  }
  return work * plan.num_replicas();
}

}  // namespace

PlanSummary summarize(const Plan& plan, const std::vector<RankCost>& ranks) {
  PlanSummary s;
  s.makespan = makespan(plan, ranks);
  s.bound = makespan_bound(plan, s.makespan);
  const auto world = static_cast<double>(ranks.size());
  s.mean = total_work(plan) / world;
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
