#include "canzona/plan/strategy.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/cost/cost.h"
#include "canzona/plan/layout/layout.h"
#include "canzona/plan/micro_groups/modes.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/schedule/pools.h"
#include "canzona/plan/strategies/balanced.h"
#include "canzona/plan/strategies/baselines.h"

namespace canzona {
namespace {

// Sums of loads over a whole model and period must stay exact integers.
void check_total(const Problem& p) {
  constexpr double kLargest = 4e18;
  double total = 0;
  for (const auto* list : {&p.costs, &p.weights}) {
    double sum = 0;
    for (const MatrixCost& c : *list) {
      sum += static_cast<double>(c.every_step.value()) * p.rule.period() +
             static_cast<double>(c.refresh.value());
    }
    total = std::max(total, sum);
  }
  if (total > kLargest) {
    throw UsageError(cat("model ", quoted(p.model.name),
                         ": the work of one "
                         "period, ",
                         total, " flops, exceeds 64-bit counts"));
  }
}

// Checks that the bytes of all ranks of a stage, replicas and slots included,
// fit 64 bits, so that no sum of memory or traffic can overflow.
void check_bytes(const PlanPart& part) {
  const double bytes = most_bytes(part);
  if (bytes > 4e18) {
    throw UsageError(cat("model ", quoted(part.model.name), ": ", bytes,
                         " bytes on ", part.mesh.world(),
                         " ranks exceed 64-bit counts"));
  }
}

void weigh_memory(Problem& p) {
  StateBytesTable table(p.rule);
  for (int64_t elements : p.shard_elements) {
    p.home_bytes.push_back(elements / p.grid.places *
                           master_bytes_per_element(p.options.parameters));
  }
  for (const Matrix& m : p.matrices) {
    const StateBytes& bytes = table.of({m.rows, m.cols});
    const bool cut =
        p.model.tensors[static_cast<size_t>(m.tensor)].cut != Cut::kNone;
    p.owner_bytes.push_back(bytes.with_owner);
    p.home_bytes[static_cast<size_t>(m.tensor)] +=
        bytes.with_shard / (cut ? p.grid.tp : p.grid.places);
  }
}

}  // namespace

std::vector<int32_t> index_matrices(size_t num_tensors,
                                    const std::vector<Matrix>& matrices) {
  std::vector<int32_t> first(num_tensors + 1, 0);
  for (const Matrix& m : matrices) ++first[static_cast<size_t>(m.tensor) + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  return first;
}

double most_bytes(const PlanPart& part) {
  constexpr double kBytesPerElement = 16;
  constexpr double kSlotsAtOnce = 8;  // of both pools, and staging
  double elements = 0;
  for (const Tensor& t : part.model.tensors)
    elements += static_cast<double>(shard_elements(part.grid, t));
  const double slots =
      part.grid.places == 1
          ? 0
          : kSlotsAtOnce + std::max(part.options.zero.prefetch, kUsualPrefetch);
  return elements * kBytesPerElement * (part.mesh.world() + slots);
}

int64_t adamw_bytes_per_element(ParameterDtype parameters) {
  return master_bytes_per_element(parameters) + 2 * kBytesPerFp32;
}

std::vector<int32_t> phases_by_name(const Model& model,
                                    const std::vector<Matrix>& matrices,
                                    const Splits& splits, int32_t phases) {
  std::vector<int32_t> phase(matrices.size(), 0);
  if (phases <= 1) return phase;
  std::vector<std::pair<std::string, size_t>> names;
  for (size_t m = 0; m < matrices.size(); ++m) {
    names.emplace_back(matrix_name(model, matrices[m], splits), m);
  }
  std::sort(names.begin(), names.end());
  for (size_t i = 0; i < names.size(); ++i) {
    phase[names[i].second] =
        static_cast<int32_t>(i % static_cast<size_t>(phases));
  }
  return phase;
}

std::vector<int64_t> Problem::steps() const {
  return steps_of(rule.period(), rule.phases());
}

std::vector<int64_t> Problem::load_of(int32_t matrix) const {
  const auto m = static_cast<size_t>(matrix);
  return load_by_step(weights[m], phase[m], rule.period(), rule.phases());
}

int64_t Problem::period_weight(int32_t tensor) const {
  const auto t = static_cast<size_t>(tensor);
  int64_t sum = 0;
  for (auto m = static_cast<size_t>(first_matrix[t]);
       m < static_cast<size_t>(first_matrix[t + 1]); ++m) {
    sum += weights[m].every_step.value() * rule.period() +
           weights[m].refresh.value();
  }
  return sum;
}

Problem make_problem(const PlanPart& part, const RuleFacts& rule,
                     const CostTable* cost_table, bool join_small_tail) {
  Problem p{.model = part.model,
            .grid = part.grid,
            .rule = rule,
            .options = part.options,
            .matrices = part.matrices,
            .first_matrix = part.first_matrix,
            .costs = part.costs,
            .phase = part.phase};
  p.weights.reserve(p.matrices.size());
  const CostModel cost(rule, cost_table);
  for (const Matrix& m : p.matrices) {
    const Tensor& tensor = p.model.tensors[static_cast<size_t>(m.tensor)];
    p.weights.push_back(
        cost.weight(*p.options.weight, {m.rows, m.cols},
                    tensor.cut == Cut::kNone ? p.grid.tp_ranks() : 1));
  }
  check_total(p);
  for (const Tensor& t : p.model.tensors) {
    p.shard_elements.push_back(shard_elements(p.grid, t));
  }
  check_bytes(part);
  p.buffers = make_buffers(p.grid, p.model, p.buffer_of);
  p.buckets =
      p.grid.places > 1
          ? make_module_buckets(p.model, p.buffer_of, p.shard_elements,
                                p.options.zero.message)
          : make_buckets(p.model, p.buffers, p.buffer_of, p.shard_elements,
                         p.options.bucket_elements, join_small_tail);
  weigh_memory(p);
  return p;
}

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
