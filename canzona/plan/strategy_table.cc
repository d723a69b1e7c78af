#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/micro_groups/modes.h"
#include "canzona/plan/strategies/balanced.h"
#include "canzona/plan/strategies/baselines.h"
#include "canzona/plan/strategy.h"

namespace canzona {

const std::vector<Strategy>& strategy_table() {
  static const std::vector<Strategy> table{
      {"replicated", "every rank repeats every update", "", Weight::kCost, 1,
       Traffic::kAllReduce, false, false, false, true, assign_replicated},
      {"layerwise",
       "whole matrices to dp ranks by global LPT, weights broadcast", "",
       Weight::kNumel, 1, Traffic::kBroadcast, false, false, false, true,
       assign_layerwise},
      {"start_offset", "owner: the rank whose even slice has the first element",
       "none", Weight::kNumel, 1, Traffic::kReduceScatter, false, false, false,
       false, assign_start_offset},
      {"contiguous", "cut points moved inside each bucket, order kept",
       "capacity", Weight::kNumel, 1, Traffic::kReduceScatter, false, false,
       false, false, assign_contiguous},
      {"megatron", "order free, LPT by max·min², shards padded to the largest",
       "sorted", Weight::kFlops, kDefaultAlpha, Traffic::kPadded, true, false,
       false, false, assign_megatron},
      {"balanced", "dp × tp × ep owners planned jointly", "balanced",
       Weight::kCost, kDefaultAlpha, Traffic::kReduceScatter, true, true, true,
       true, assign_balanced},
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

int32_t stage_home(const Problem& p, int32_t tensor, int32_t home) {
  const Buffer& buffer =
      p.buffers[static_cast<size_t>(p.buffer_of[static_cast<size_t>(tensor)])];
  return buffer.ep < 0 ? home : p.grid.home_of_expert(home, buffer.ep);
}

std::vector<std::vector<int32_t>> matrices_by_home(const Problem& p,
                                                   const Assignment& a) {
  const auto homes = static_cast<size_t>(p.grid.homes());
  std::vector<std::vector<int32_t>> out(homes * static_cast<size_t>(p.grid.pp));
  for (const OpenBucket& bucket : p.buckets) {
    const auto stage = static_cast<size_t>(
        p.buffers[static_cast<size_t>(bucket.buffer)].stage);
    for (int32_t t : bucket.matrix_tensors) {
      const int32_t home = a.home[static_cast<size_t>(t)];
      if (home < 0) continue;
      auto& list =
          out[stage * homes + static_cast<size_t>(stage_home(p, t, home))];
      for (int32_t m = p.first_matrix[static_cast<size_t>(t)];
           m < p.first_matrix[static_cast<size_t>(t) + 1]; ++m) {
        list.push_back(m);
      }
    }
  }
  return out;
}

int64_t exchange_bytes(const Problem& p, int32_t matrix) {
  const Matrix& m = p.matrices[static_cast<size_t>(matrix)];
  const bool cut =
      p.model.tensors[static_cast<size_t>(m.tensor)].cut != Cut::kNone;
  const int64_t bytes = m.rows * m.cols * kBytesPerFp32;
  return bytes / (cut ? p.grid.tp : p.grid.places);
}

int64_t period_weight_of(const Problem& p, int32_t matrix) {
  const MatrixCost& w = p.weights[static_cast<size_t>(matrix)];
  return w.every_step.value() * p.rule.period() + w.refresh.value();
}

}  // namespace canzona
