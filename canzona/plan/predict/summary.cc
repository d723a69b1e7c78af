#include "canzona/plan/predict/summary.h"

#include <algorithm>

#include "canzona/plan/parts.h"
#include "canzona/plan/predict/loads.h"

namespace canzona {

namespace {

// Over a period, on all ranks.
double total_work(const PlanPart& part) {
  double work = 0;
  for (const MatrixCost& cost : part.costs) {
    work += static_cast<double>(cost.every_step.value()) * part.period +
            static_cast<double>(cost.refresh.value());
  }
  return work * part.num_replicas();
}
double total_work(const Plan& plan) {
  double work = 0;
  for (const PlanPart& part : plan.parts) work += total_work(part);
  return work;
}

template <class WholeOrPart>
PlanSummary figures_of(const WholeOrPart& plan,
                       const std::vector<RankCost>& ranks) {
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

}  // namespace

PlanSummary summarize(const PlanPart& part,
                      const std::vector<RankCost>& ranks) {
  return figures_of(part, ranks);
}

PlanSummary summarize(const Plan& plan, const std::vector<RankCost>& ranks) {
  return figures_of(plan, ranks);
}

void summarize(Plan& plan) {
  std::vector<std::vector<RankCost>> of_parts;
  for (PlanPart& part : plan.parts) {
    of_parts.push_back(predict(part));
    part.summary = summarize(part, of_parts.back());
  }
  plan.summary = cuts_experts_apart(plan)
                     ? summarize(plan, sum_of_parts(plan, std::move(of_parts)))
                     : plan.parts.front().summary;
}

}  // namespace canzona
