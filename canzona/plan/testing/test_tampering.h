// A sound plan, and ways to spoil it, for the tests of validate().
#pragma once

#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::plan {

// Two layers on dp = 2, tp = 2, in several buckets.
inline Plan sound_plan(const std::string& strategy = "balanced") {
  PlanOptions options = with_strategy(strategy);
  options.bucket_elements = 700;
  return plan_of(toy_model(), "dp=2,tp=2", options);
}

inline int32_t tensor_named(const Plan& plan, const std::string& name) {
  for (size_t t = 0; t < plan.model.tensors.size(); ++t) {
    if (plan.model.tensors[t].name == name) return static_cast<int32_t>(t);
  }
  return -1;
}

inline size_t matrix_of(const Plan& plan, const std::string& tensor) {
  return static_cast<size_t>(
      plan.first_matrix[static_cast<size_t>(tensor_named(plan, tensor))]);
}

inline Bucket& bucket_with(Plan& plan, const std::string& tensor) {
  const auto t = static_cast<size_t>(tensor_named(plan, tensor));
  return plan.parts[0].buckets[static_cast<size_t>(plan.parts[0].bucket_of[t])];
}

inline void replace_owners(Plan& plan, size_t matrix,
                           const std::vector<int32_t>& owners) {
  OwnerLists lists;
  for (size_t m = 0; m < plan.parts[0].owners.size(); ++m) {
    if (m == matrix) {
      lists.push_back(owners);
    } else {
      lists.push_back(plan.parts[0].owners[m]);
    }
  }
  plan.parts[0].owners = lists;
}

}  // namespace canzona::plan
