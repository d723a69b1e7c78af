#include "canzona/runtime/lent/lent_rank.h"

#include <algorithm>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/runs.h"

namespace canzona {
namespace {

// Options in force are part of the plan: another device would run another
// algorithm than the plan weighed.
std::unique_ptr<Rule> rule_on(const PlacedGroup& group, Engine& engine) {
  const auto planned = group.options.find("device");
  const std::string device = engine.kind();
  if (planned != group.options.end() && planned->second != device)
    throw UsageError(cat("the plan is for rule ", group.rule, " on device ",
                         planned->second, ", but this rank is on ", device));
  return make_rule(group.rule, group.options, DType::kFp32, device);
}

}  // namespace

LentRank::LentRank(const PlacedPlan& the_plan, int32_t rank,
                   std::vector<Engine*> the_engines, Lanes* the_lanes)
    : plan(the_plan),
      schedule(make_placed_schedule(the_plan, rank,
                                    the_engines.at(0)->batch_width())),
      engines(std::move(the_engines)),
      engine(*engines[0]),
      lanes(the_lanes),
      is_immediate(engine.make_lane() == nullptr),
      gradients(the_plan.tensors.size()),
      steps(the_plan.tensors.size()),
      rates(the_plan.groups.size()) {
  for (const PlacedGroup& group : plan.groups) {
    options.push_back(group.options);
    rules.push_back(rule_on(group, engine));
    CANZONA_CHECK(
        rules.back()->facts().gather_fields() <= static_cast<int>(kMostFields),
        "fields of rule ", group.rule);
  }
  for (const PlacedMatrix& matrix : plan.matrices)
    dims.push_back({matrix.rows, matrix.cols});
  for (const std::vector<int32_t>& states : schedule.states_of)
    CANZONA_CHECK(states.size() <= kMostShardStates, states.size(), " states");
}

Run LentRank::weights(int32_t t, int64_t at) const {
  if (tensor(t).dtype == ParameterDtype::kBf16)
    return run_of(memory.masters[index(t)] + at);
  return advanced(Run{memory.weights[index(t)], DType::kFp32}, at);
}

uint16_t* LentRank::rounded(int32_t t, int64_t at) const {
  if (tensor(t).dtype != ParameterDtype::kBf16) return nullptr;
  return reinterpret_cast<uint16_t*>(memory.weights[index(t)]) + at;
}

Run LentRank::gradient(int32_t t, int64_t at) const {
  const LentGradient& gradient = gradients[index(t)];
  return advanced(Run{gradient.data, gradient.dtype}, at);
}

Shard LentRank::shard(int32_t t, const Dims& whole, int64_t at, int64_t count,
                      Run* states) const {
  size_t filled = 0;
  for (int32_t s : schedule.states_of[index(t)]) {
    const PlacedState& state = schedule.states[index(s)];
    states[filled++] =
        run_of(memory.states[index(state.memory)] + state.at + at);
  }
  return {.whole = whole,
          .count = count,
          .weights = weights(t, at),
          .states = {states, filled},
          .rounded = rounded(t, at)};
}

void LentRank::level_scratch() {
  if (lanes == nullptr) return;
  int64_t most = 0;
  for (int i = 0; i < lanes->num_lanes(); ++i)
    most = std::max(most, lanes->lane(i).arena().reserved());
  for (int i = 0; i < lanes->num_lanes(); ++i)
    lanes->lane(i).arena().reserve(most);
}

}  // namespace canzona
