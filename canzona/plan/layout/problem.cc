#include "canzona/plan/layout/problem.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/cost/cost.h"
#include "canzona/plan/layout/layout.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/schedule/modules.h"

namespace canzona::plan {
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
                           master_bytes_per_element(p.options));
  }
  for (const Matrix& m : p.matrices) {
    const StateBytes& bytes = table.of(shape_of(m));
    const bool cut =
        p.model.tensors[static_cast<size_t>(m.tensor)].cut != Cut::kNone;
    p.owner_bytes.push_back(bytes.with_owner);
    p.home_bytes[static_cast<size_t>(m.tensor)] +=
        bytes.with_shard / (cut ? p.grid.tp : p.grid.places);
  }
}

}  // namespace

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

int64_t adamw_bytes_per_element(const PlanOptions& options) {
  return master_bytes_per_element(options) + 2 * kBytesPerFp32;
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
        cost.weight(*p.options.weight, shape_of(m),
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

}  // namespace canzona::plan
