#include "canzona/runtime/caller/caller_rank.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/rules/runs.h"

namespace canzona::runtime {
namespace {

// The options in force are part of the plan: another device would run a
// different algorithm from the one that the plan priced.
std::unique_ptr<Rule> rule_on(const RuleGroup& group, Engine& engine) {
  const auto planned = group.options.find("device");
  const std::string device = engine.kind();
  if (planned != group.options.end() && planned->second != device)
    throw UsageError(cat("the plan is for rule ", group.rule, " on device ",
                         planned->second, ", but this rank is on ", device));
  return make_rule(group.rule, group.options, DType::kFp32, device);
}

}  // namespace

uint64_t hash_of_options(const Rule& rule) {
  uint64_t hash = 0;
  for (const auto& [name, value] : rule.facts().options())
    for (const std::string* text : {&name, &value})
      for (const char c : *text)
        hash = bits_at(hash, static_cast<unsigned char>(c));
  return hash;
}

CallerRank::CallerRank(const StoragePlan& the_plan, int32_t rank,
                       std::vector<Engine*> the_engines, Lanes* the_lanes)
    : StepEngines(std::move(the_engines), the_lanes),
      plan(the_plan),
      schedule(make_storage_schedule(the_plan, rank, lead.batch_width())),
      gradients(the_plan.tensors.size()),
      steps(the_plan.tensors.size()),
      rates(the_plan.groups.size()) {
  for (const RuleGroup& group : plan.groups) {
    options.push_back(group.options);
    rules.push_back(rule_on(group, lead));
    hashes.push_back(hash_of_options(*rules.back()));
    CANZONA_CHECK(
        rules.back()->facts().gather_fields() <= static_cast<int>(kMostFields),
        "fields of rule ", group.rule);
  }
  for (const std::vector<int32_t>& states : schedule.states_of)
    CANZONA_CHECK(states.size() <= kMostShardStates, states.size(), " states");
}

StoredWeights CallerRank::weights(int32_t t, int64_t at) const {
  std::byte* const stored = memory.weights[index(t)];
  if (tensor(t).dtype != DType::kBf16)
    return {advanced(Run{stored, DType::kFp32}, at)};
  uint16_t* const rounded = reinterpret_cast<uint16_t*>(stored) + at;
  std::byte* const masters = memory.masters[index(t)];
  if (plan.options.master == MasterForm::kFp32)
    return {advanced(Run{masters, DType::kFp32}, at), rounded};
  return {{}, rounded, reinterpret_cast<uint16_t*>(masters) + at};
}

Run CallerRank::stored_gradient(int32_t t, int64_t at) const {
  const CallerGradient& gradient = gradients[index(t)];
  return advanced(Run{gradient.data, gradient.dtype}, at);
}

Shard CallerRank::stored_shard(int32_t t, const Dims& whole, int64_t at,
                               int64_t count, Run* states) const {
  size_t filled = 0;
  for (int32_t s : schedule.states_of[index(t)]) {
    const ScheduledState& state = schedule.states[index(s)];
    states[filled++] =
        run_of(memory.states[index(state.memory)] + state.at + at);
  }
  const StoredWeights stored = weights(t, at);
  return {.whole = whole,
          .count = count,
          .weights = stored.exact,
          .states = {states, filled},
          .rounded = stored.rounded,
          .remainder = stored.remainder};
}

CallerGradients::CallerGradients(const CallerRank& rank) : rank_(rank) {
  std::vector<std::vector<Extent>> stored;
  for (int32_t t = 0; t < std::ssize(rank.plan.tensors); ++t)
    stored.push_back({{0, stored_elements(rank.plan, t, rank.schedule.rank)}});
  looked_ = parts_of(stored);
  counted_ = parts_of(rank.schedule.counted);
  for (auto* runs : {&runs_.looked, &runs_.clipped})
    runs->reserve(looked_.size());
  runs_.codes.reserve(looked_.size());
  runs_.counted.reserve(counted_.size());
}

// Parts are small enough to be distributed over the lanes.
std::vector<CallerGradients::Part> CallerGradients::parts_of(
    const std::vector<std::vector<Extent>>& extents) const {
  const int64_t most = rank_.is_immediate ? int64_t{1} << 18 : int64_t{1} << 40;
  std::vector<Part> parts;
  for (size_t t = 0; t < extents.size(); ++t)
    for (const Extent& e : extents[t])
      for (int64_t i = 0; i < e.count; i += most)
        parts.push_back({static_cast<int32_t>(t),
                         {e.first + i, std::min(most, e.count - i)}});
  return parts;
}

const GradientRuns& CallerGradients::runs() {
  const auto run_of = [&](const Part& part) {
    return Engine::Stretch{
        rank_.stored_gradient(part.tensor, part.extent.first),
        part.extent.count};
  };
  runs_.looked.clear();
  runs_.codes.clear();
  runs_.counted.clear();
  for (const Part& part : looked_) {
    if (!rank_.tensor_has_gradient(part.tensor)) continue;
    runs_.looked.push_back(run_of(part));
    runs_.codes.push_back(
        nonfinite_code(part.tensor, rank_.schedule.rank, true));
  }
  runs_.clipped = runs_.looked;
  for (const Part& part : counted_)
    if (rank_.tensor_has_gradient(part.tensor))
      runs_.counted.push_back(run_of(part));
  return runs_;
}

int64_t CallerGradients::likeness() const {
  constexpr uint64_t kSeed = 0x6c656e74, kMask = (uint64_t{1} << 62) - 1;
  uint64_t sum = 0;
  for (size_t g = 0; g < rank_.rates.size(); ++g)
    sum += bits_at(kSeed + g + rank_.hashes[g],
                   std::bit_cast<uint64_t>(rank_.rates[g]));
  for (size_t t = 0; t < rank_.gradients.size(); ++t)
    if (rank_.gradients[t].data != nullptr) sum += bits_at(kSeed, t);
  return static_cast<int64_t>(sum & kMask);
}

}  // namespace canzona::runtime
