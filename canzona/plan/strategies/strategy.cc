#include "canzona/plan/strategies/strategy.h"

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/micro_groups/modes.h"

namespace canzona::plan {

const std::vector<Strategy>& strategy_table() {
  static const std::vector<Strategy> table{
      {"replicated",
       "every rank repeats every update",
       "",
       "",
       Weight::kCost,
       1,
       {Traffic::kAllReduce, false, false, false},
       true,
       assign_replicated},
      {"layerwise",
       "whole matrices to dp ranks by global LPT, weights broadcast",
       "Whole matrices go, largest first, to the least loaded home.",
       "",
       Weight::kNumel,
       1,
       {Traffic::kBroadcast, false, false, false},
       true,
       assign_layerwise},
      {"start_offset",
       "home: the rank whose even slice has the first element",
       "Every home has an even slice of the bucket; a tensor belongs to the "
       "slice that holds its first element.",
       "none",
       Weight::kNumel,
       1,
       {Traffic::kReduceScatter, false, false, false},
       false,
       assign_start_offset},
      {"contiguous",
       "cut points moved inside each bucket, order kept",
       "The order of the bucket is kept; the cut points around it were moved "
       "to level the homes.",
       "capacity",
       Weight::kNumel,
       1,
       {Traffic::kReduceScatter, false, false, false},
       false,
       assign_contiguous},
      {"megatron",
       "order free, LPT by max·min², shards padded to the largest",
       "Tensors go, largest max·min² first, to the least loaded home with "
       "room below 1.3 × the even share.",
       "sorted",
       Weight::kFlops,
       kDefaultAlpha,
       {Traffic::kPadded, true, false, false},
       false,
       assign_megatron},
      {"balanced",
       "dp × tp × ep owners planned jointly",
       "Home and tp coordinate were chosen together over all ranks: the "
       "largest cost first, to the least loaded rank, then by moves and "
       "swaps.",
       "balanced",
       Weight::kCost,
       kDefaultAlpha,
       {Traffic::kReduceScatter, true, true, true, true},
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

}  // namespace canzona::plan
