// Plans with teams, for tests: links that cost nothing, strips of eight.
#pragma once

#include "canzona/plan/testing/test_support.h"

namespace canzona::plan {

inline RuleChoice rule_with_strips(int strips = 8) {
  return {"muon", {{"strips", std::to_string(strips)}}};
}

// One factor for a side of up to 512 beside a longer one; a refresh every ten
// steps.
inline RuleChoice soap_with_strips(int strips = 8, int phases = 1) {
  return {"soap",
          {{"strips", std::to_string(strips)},
           {"max_preconditioner_dim", "512"},
           {"phases", std::to_string(phases)}}};
}

// Two factors, refreshed in every second step by a full decomposition.
inline RuleChoice soap_with_helpers(int phases = 1) {
  return {"soap",
          {{"refresh", "eigh"},
           {"precondition_frequency", "2"},
           {"phases", std::to_string(phases)}}};
}

inline PlanOptions with_teams(int32_t teams = kTeamsAuto) {
  PlanOptions options;
  options.teams = teams;
  options.links.intra_bytes_per_second = 1e18;
  options.links.latency_seconds = 0;
  return options;
}

// A wide matrix of 64 x 1024, a tall one of 2048 x 64, both cut by tp, and a
// small one of 64 x 64 that is not, in every layer.
inline Model wide_and_small(int32_t layers) {
  std::vector<Tensor> tensors;
  for (int32_t l = 0; l < layers; ++l) {
    const std::string at = cat("layers.", l, ".");
    tensors.push_back(matrix_tensor(at + "wide", 64, 1024, Cut::kColumns, l));
    tensors.push_back(matrix_tensor(at + "tall", 2048, 64, Cut::kRows, l));
    tensors.push_back(matrix_tensor(at + "small", 64, 64, Cut::kNone, l));
  }
  return model_of(std::move(tensors));
}

// Two square matrices on four ranks leave two ranks without.
inline Model two_squares() {
  std::vector<Tensor> tensors;
  for (int32_t i = 0; i < 2; ++i)
    tensors.push_back(matrix_tensor(cat("square", i), 128, 128, Cut::kRows));
  return model_of(std::move(tensors));
}

inline size_t count_teams(const Plan& plan) {
  size_t teams = 0;
  for (const PlanPart& part : plan.parts)
    for (size_t m = 0; m < part.owners.size(); ++m)
      teams += part.owners[m].size() > 1;
  return teams;
}

}  // namespace canzona::plan
