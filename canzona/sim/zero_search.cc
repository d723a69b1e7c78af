#include "canzona/sim/zero_search.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/cost/cost.h"
#include "canzona/plan/parts.h"
#include "canzona/sim/plan_iteration.h"
#include "canzona/sim/zero_bytes.h"

namespace canzona {
namespace {

// Plans each choice once, however often it is requested.
class Weighing {
 public:
  Weighing(const PlanRequest& request, const Workload& work,
           const CostBasis* cost, const MemoryTerms* terms)
      : request_(request),
        work_(work),
        cost_(cost),
        terms_(terms == nullptr ? MemoryTerms{} : *terms) {}

  ZeroWeight operator()(const ZeroChoice& choice) {
    for (const auto& [known, weight] : known_)
      if (known == choice) return weight;
    ZeroWeight weight;
    try {
      weight = weigh(choice);
    } catch (const UsageError& error) {
      weight = {.refusal = error.what(), .experts = choice.experts};
    }
    return known_.emplace_back(choice, weight).second;
  }

 private:
  ZeroWeight weigh(const ZeroChoice& choice) const {
    PlanRequest request = request_;
    request.options.strategy = choice.strategy;
    request.options.zero.sizes = choice.sizes;
    if (choice.experts.z1 > 0) request.options.zero.experts = choice.experts;
    Plan plan = plan_in_terms(request, terms_);
    if (cost_ != nullptr) plan = with_basis(std::move(plan));
    const IterationPrediction predicted = predict_iteration(plan, work_);
    const RankMemory memory = fullest_memory(predict_in_terms(plan, terms_));
    return {.memory_bytes = memory.total().value() + terms_.activations,
            .slow_bytes = predicted.slow_bytes,
            .fast_bytes = predicted.fast_bytes,
            .seconds = predicted.time.seconds,
            .step_seconds = predicted.time.step_seconds,
            .memory = memory,
            .experts = plan.options.zero.experts,
            .replicas = plan.parts.front().num_replicas(),
            .z2_crosses_nodes = crosses_nodes(plan, &ZeroSizes::z2),
            .z3_crosses_nodes = crosses_nodes(plan, &ZeroSizes::z3)};
  }

  Plan with_basis(Plan plan) const {
    plan.cost_basis = *cost_;
    for (PlanPart& part : plan.parts) part.cost_basis = *cost_;
    return plan;
  }

  const PlanRequest& request_;
  const Workload& work_;
  const CostBasis* cost_;
  MemoryTerms terms_;
  std::vector<std::pair<ZeroChoice, ZeroWeight>> known_;
};

ZeroComparison described(const PlanRequest& request, const Workload& work,
                         const std::vector<std::string>& strategies,
                         const MemoryTerms* terms) {
  ZeroComparison all{.model = request.model.name,
                     .mesh = request.mesh,
                     .rule = std::string(request.rule.name()),
                     .strategy = request.options.strategy,
                     .several_strategies = strategies.size() > 1,
                     .options = request.options,
                     .work = work};
  std::vector<std::string> names;
  for (const std::string& name : strategies)
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  if (!names.empty()) all.strategy = join(names, ", ");
  if (terms != nullptr) {
    all.terms = *terms;
    all.beside_bytes = terms->activations;
  }
  return all;
}

std::vector<ZeroChoice> choices_of(const PlanRequest& request,
                                   const ZeroChoices& all) {
  std::vector<std::string> strategies = all.strategies;
  if (strategies.empty()) strategies = {request.options.strategy};
  std::vector<ZeroSizes> experts = all.experts;
  if (experts.empty()) experts = {ZeroSizes{}};
  std::vector<ZeroChoice> choices;
  for (const std::string& strategy : strategies)
    for (const ZeroSizes& dense : all.sizes)
      for (const ZeroSizes& own : experts)
        choices.push_back({dense, strategy, own});
  return choices;
}

ZeroSearch ranked(const PlanRequest& request,
                  const std::vector<ZeroChoice>& choices, Weighing& weighing) {
  return rank_choices(choices, request.options.memory_cap_bytes,
                      std::ref(weighing));
}

}  // namespace

bool ZeroComparison::has_experts() const {
  return std::ranges::any_of(search.ranking, [](const RankedZero& row) {
    return row.weight.experts.z1 > 0;
  });
}

ZeroComparison weigh_sizes(const PlanRequest& request, const Workload& work,
                           const ZeroChoices& choices, const CostBasis* cost,
                           const MemoryTerms* terms) {
  Weighing weighing(request, work, cost, terms);
  ZeroComparison all = described(request, work, choices.strategies, terms);
  all.search = ranked(request, choices_of(request, choices), weighing);
  return all;
}

ZeroComparison search_sizes(const PlanRequest& request, const Workload& work,
                            const SearchedSizes& what, const CostBasis* cost,
                            const MemoryTerms* terms) {
  if (what.experts && !has_experts(request.model))
    throw UsageError(
        cat("zero-experts auto: ", request.model.name, " has no experts"));
  Weighing weighing(request, work, cost, terms);
  ZeroComparison all = described(request, work, what.strategies, terms);
  std::vector<ZeroChoice> choices;
  ZeroChoices second{
      {with_states(request.options.zero.sizes, request.mesh.homes())},
      all_zero_sizes(request.mesh.expert_homes()),
      what.strategies};
  if (what.dense) {
    choices = choices_of(
        request, {all_zero_sizes(request.mesh.homes()), {}, what.strategies});
    all.search = ranked(request, choices, weighing);
    const ZeroChoice& best = all.search.ranking.front().choice;
    second.sizes = {best.sizes};
    second.strategies = {best.strategy};
  }
  if (!what.experts) return all;
  for (const ZeroChoice& choice : choices_of(request, second))
    choices.push_back(choice);
  all.search = ranked(request, choices, weighing);
  return all;
}

void take_best(const ZeroComparison& all, PlanOptions& options) {
  if (!all.search.is_found())
    throw UsageError(cat("sizes of ZeRO: ", all.search.summary()));
  const RankedZero& best = all.search.ranking.front();
  options.zero.sizes = best.choice.sizes;
  options.zero.experts = best.weight.experts;
  options.strategy = best.choice.strategy;
}

}  // namespace canzona
