#include "canzona/plan/plan.h"

#include <numeric>

#include "canzona/plan/problem.h"

namespace canzona {

void OwnerLists::push_back(std::span<const int32_t> ranks) {
  ranks_.insert(ranks_.end(), ranks.begin(), ranks.end());
  begin_.push_back(static_cast<uint32_t>(ranks_.size()));
}

void derive(Plan& plan) {
  plan.grid = fold(plan.mesh, plan.options.zero.sizes);
  const size_t num_tensors = plan.model.tensors.size();
  plan.bucket_of.assign(num_tensors, -1);
  for (size_t b = 0; b < plan.buckets.size(); ++b) {
    for (int32_t t : plan.buckets[b].tensors) {
      plan.bucket_of[static_cast<size_t>(t)] = static_cast<int32_t>(b);
    }
  }
  plan.first_matrix.assign(num_tensors + 1, 0);
  for (const Matrix& m : plan.matrices) {
    ++plan.first_matrix[static_cast<size_t>(m.tensor) + 1];
  }
  std::partial_sum(plan.first_matrix.begin(), plan.first_matrix.end(),
                   plan.first_matrix.begin());
  const auto rule = make_rule_facts(plan.rule, plan.rule_options);
  plan.period = rule->period();
  plan.phases = rule->phases();
  plan.phase = phases_by_name(plan.model, plan.matrices, plan.options.splits,
                              plan.phases);
}

}  // namespace canzona
