#include "canzona/plan/predict/summary.h"

#include <algorithm>
#include <cmath>

#include "canzona/plan/cost/matrix_blocks.h"
#include "canzona/plan/parts.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/predict/team_figures.h"
#include "canzona/plan/schedule/team_strips.h"

namespace canzona {

namespace {

// Over a period, on all ranks.
double period_work(const SettledRequest& plan, const MatrixCost& cost) {
  return static_cast<double>(cost.every_step.value()) * plan.period +
         static_cast<double>(cost.refresh.value());
}
double total_work(const PlanPart& part) {
  double work = 0;
  for (const MatrixCost& cost : part.costs) work += period_work(part, cost);
  return work * part.num_replicas();
}
double total_work(const Plan& plan) {
  double work = 0;
  for (const PlanPart& part : plan.parts) work += total_work(part);
  return work;
}

// A makespan that whole owners reach where teams may have made the plan's
// smaller: that of dealing matrices longest first.
template <class WholeOrPart>
Ticks longest_first(const WholeOrPart& plan, double mean) {
  if (!has_teams(plan)) return {};
  double largest = 0;
  for (const MatrixCost& cost : plan.costs)
    largest = std::max(largest, period_work(plan, cost));
  return Ticks(static_cast<int64_t>(std::ceil(mean + largest)));
}

// False where no matrix is shared by the request alone: nothing is known of
// refreshes in strips, and other micro-groups have one owner of each matrix.
bool may_share(const SettledRequest& plan) {
  if (plan.options.micro_groups != "balanced") return false;
  return plan.period == 1 ||
         has_blocks(plan, *make_rule_facts(plan.rule, plan.rule_options));
}

template <class WholeOrPart>
PlanSummary figures_of(const WholeOrPart& plan,
                       const std::vector<RankCost>& ranks) {
  PlanSummary s;
  s.makespan = makespan(plan, ranks);
  s.mean = total_work(plan) / static_cast<double>(ranks.size());
  // Teams may be below what whole owners reach.
  s.bound =
      makespan_bound(plan, std::max(s.makespan, longest_first(plan, s.mean)));
  if (plan.options.teams != kTeamsOff)
    s.team_bound =
        may_share(plan) ? std::min(team_bound_of(plan), s.bound) : s.bound;
  const auto world = static_cast<double>(ranks.size());
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
