#include "canzona/plan/placed/placed_loads.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "canzona/base/index.h"
#include "canzona/plan/predict/loads.h"

namespace canzona {
namespace {

constexpr int64_t kLongestCommonPeriod = 10'000;
constexpr size_t kMostKinds = 128;

// The phase that is refreshed in a step; -1: none.
int32_t phase_in(const GroupPeriod& group, int64_t step) {
  const auto phase =
      static_cast<int32_t>((group.period - step % group.period) % group.period);
  return phase < group.phases ? phase : -1;
}

}  // namespace

StepKinds::StepKinds(std::vector<GroupPeriod> groups)
    : groups_(std::move(groups)) {
  GroupPeriod first;
  for (const GroupPeriod& group : groups_)
    if (first.period == 1) first = group;
  alike_ = std::all_of(groups_.begin(), groups_.end(), [&](const auto& group) {
    return group.period == 1 || group == first;
  });
  if (alike_ && first.phases < static_cast<int32_t>(kMostKinds)) {
    period_ = first.period;
    steps_ = steps_of(first.period, first.phases);
    return;
  }
  alike_ = false;
  if (walk_steps()) return;
  averaged_ = true;
  period_ = 1;
  steps_ = {1};
}

// False if there would be too many steps or kinds.
bool StepKinds::walk_steps() {
  period_ = 1;
  for (const GroupPeriod& group : groups_) {
    period_ = std::lcm(period_, group.period);
    if (period_ > kLongestCommonPeriod) return false;
  }
  std::map<std::vector<int32_t>, int64_t> count;
  for (int64_t step = 0; step < period_; ++step) {
    std::vector<int32_t> kind;
    for (const GroupPeriod& group : groups_)
      kind.push_back(phase_in(group, step));
    ++count[kind];
    if (count.size() > kMostKinds) return false;
  }
  for (const auto& [kind, steps] : count) {
    kinds_.push_back(kind);
    steps_.push_back(steps);
  }
  return true;
}

std::vector<int64_t> StepKinds::load(const MatrixCost& cost, int32_t group,
                                     int32_t phase) const {
  const GroupPeriod& own = groups_[index(group)];
  const int64_t every = cost.every_step.value();
  const int64_t refresh = cost.refresh.value();
  if (averaged_) return {every + (refresh + own.period - 1) / own.period};
  if (own.period == 1)
    return std::vector<int64_t>(steps_.size(), every + refresh);
  if (alike_) return load_by_step(cost, phase, own.period, own.phases);
  std::vector<int64_t> load;
  for (const auto& kind : kinds_)
    load.push_back(every + (kind[index(group)] == phase ? refresh : 0));
  return load;
}

int64_t StepKinds::period_load(const MatrixCost& cost, int32_t group,
                               int32_t phase) const {
  const std::vector<int64_t> by_kind = load(cost, group, phase);
  return std::inner_product(by_kind.begin(), by_kind.end(), steps_.begin(),
                            int64_t{0});
}

StepKinds step_kinds(const PlacedRequest& request) {
  const auto facts = group_facts(request.groups);
  std::vector<GroupPeriod> groups(facts.size());
  for (const PlacedTensor& tensor : request.tensors) {
    const size_t g = index(tensor.group);
    groups[g] = {facts[g]->period(), facts[g]->phases()};
  }
  return StepKinds(std::move(groups));
}

std::vector<std::vector<int64_t>> placed_loads(const PlacedPlan& plan,
                                               const StepKinds& kinds) {
  std::vector<std::vector<int64_t>> loads(
      index(plan.world), std::vector<int64_t>(kinds.steps().size(), 0));
  for (const PlacedMatrix& m : plan.matrices) {
    const auto own =
        kinds.load(m.cost, plan.tensors[index(m.tensor)].group, m.phase);
    auto& load = loads[index(m.owner)];
    for (size_t k = 0; k < own.size(); ++k) load[k] += own[k];
  }
  return loads;
}

Ticks placed_makespan(const std::vector<std::vector<int64_t>>& loads,
                      const StepKinds& kinds) {
  int64_t sum = 0;
  for (size_t k = 0; k < kinds.steps().size(); ++k) {
    int64_t most = 0;
    for (const auto& load : loads) most = std::max(most, load[k]);
    sum += kinds.steps()[k] * most;
  }
  return Ticks(sum);
}

}  // namespace canzona
