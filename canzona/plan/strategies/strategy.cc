#include "canzona/plan/strategies/strategy.h"

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/micro_groups/modes.h"
#include "canzona/plan/strategies/balanced.h"
#include "canzona/plan/strategies/baselines.h"

namespace canzona {

const std::vector<Strategy>& strategy_table() {
  static const std::vector<Strategy> table{
      {"replicated",
       "every rank repeats every update",
       "",
       Weight::kCost,
       1,
       {Traffic::kAllReduce, false, false, false},
       true,
       assign_replicated},
      {"layerwise",
       "whole matrices to dp ranks by global LPT, weights broadcast",
       "",
       Weight::kNumel,
       1,
       {Traffic::kBroadcast, false, false, false},
       true,
       assign_layerwise},
      {"start_offset",
       "owner: the rank whose even slice has the first element",
       "none",
       Weight::kNumel,
       1,
       {Traffic::kReduceScatter, false, false, false},
       false,
       assign_start_offset},
      {"contiguous",
       "cut points moved inside each bucket, order kept",
       "capacity",
       Weight::kNumel,
       1,
       {Traffic::kReduceScatter, false, false, false},
       false,
       assign_contiguous},
      {"megatron",
       "order free, LPT by max·min², shards padded to the largest",
       "sorted",
       Weight::kFlops,
       kDefaultAlpha,
       {Traffic::kPadded, true, false, false},
       false,
       assign_megatron},
      {"balanced",
       "dp × tp × ep owners planned jointly",
       "balanced",
       Weight::kCost,
       kDefaultAlpha,
       {Traffic::kReduceScatter, true, true, true},
       true,
       assign_balanced},
  };
  return table;
}

const std::vector<MicroGroupMode>& micro_group_table() {
  static const std::vector<MicroGroupMode> table{
      {"none", "each matrix a round of its own, owners round-robin",
       assign_rounds_in_order},
      {"sorted", "the same, largest first", assign_rounds_sorted},
      {"capacity", "greedy with rollback under the capacity", assign_capacity},
      {"balanced", "loads kept over rounds, equal shapes together",
       assign_balanced_rounds},
  };
  return table;
}

namespace {

template <class Entry>
const Entry& find(const std::vector<Entry>& table, const std::string& name,
                  const char* option) {
  std::vector<std::string> names;
  for (const Entry& entry : table) {
    if (name == entry.name) return entry;
    names.emplace_back(entry.name);
  }
  throw UsageError(cat(option, ": unknown value ", quoted(name), ", expected ",
                       join(names, ", "), did_you_mean(name, names)));
}

}  // namespace

const Strategy& find_strategy(const std::string& name) {
  return find(strategy_table(), name, "strategy");
}

const MicroGroupMode& find_micro_group_mode(const std::string& name) {
  return find(micro_group_table(), name, "micro-groups");
}

}  // namespace canzona
