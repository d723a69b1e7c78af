// Plans whose blocks have owners of their own, whether that pays or not, for
// the tests of this folder.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "canzona/plan/cost/cost.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/runtime/testing/test_plans.h"

namespace canzona::runtime {

// Matrices cut along blocks and across them, by rows, by columns and not at
// all, with short blocks at the ends of one side or both, and one that is a
// single block.
inline Model blocked_model() {
  std::vector<Tensor> tensors;
  tensors.push_back(matrix_tensor("wide.rows", 24, 40, Cut::kRows));
  tensors.push_back(matrix_tensor("wide.columns", 16, 64, Cut::kColumns));
  tensors.push_back(matrix_tensor("tall.rows", 56, 20, Cut::kRows));
  tensors.push_back(matrix_tensor("tall.columns", 44, 24, Cut::kColumns));
  tensors.push_back(matrix_tensor("everywhere", 20, 35, Cut::kNone));
  tensors.push_back(matrix_tensor("small", 16, 16, Cut::kRows));
  tensors.push_back(adamw_tensor("norm", 48));
  return model_of(std::move(tensors));
}

// Blocks of 16, and refreshes within a few steps.
inline RuleOptions in_blocks(const std::string& rule, int phases = 1) {
  RuleOptions options = {{"precondition_frequency", "3"},
                         {"phases", std::to_string(phases)},
                         {"max_preconditioner_dim", "16"}};
  if (rule == "soap") options["long_sides"] = "cut";
  return options;
}

// Chooses the owner of a block, whatever ranks there are.
using BlockOwnerOf = std::function<size_t(size_t matrix, int32_t block)>;

inline Plan give_blocks(Plan plan, const BlockOwnerOf& owner_of) {
  plan.options.teams = kTeamsAuto;
  for (PlanPart& part : plan.parts) {
    part.options.teams = kTeamsAuto;
    const auto facts = make_rule_facts(part.rule, part.rule_options);
    OwnerLists owners;
    for (size_t m = 0; m < part.matrices.size(); ++m) {
      const Matrix& matrix = part.matrices[m];
      const MatrixBlocks blocks(*facts, {matrix.rows, matrix.cols});
      std::vector<int32_t> own;
      for (int32_t b = 0; b < blocks.count(); ++b)
        own.push_back(static_cast<int32_t>(owner_of(m, b) %
                                           static_cast<size_t>(part.grid.tp)));
      if (!blocks.fall_apart() || part.owners[m].empty() ||
          distinct(own).size() == 1)
        owners.push_back(part.owners[m]);
      else
        owners.push_back(own);
    }
    part.owners = owners;
  }
  summarize(plan);
  return plan;
}

inline PlanWish block_wish(const std::string& rule, const std::string& mesh,
                           int phases = 1) {
  PlanWish wish{.mesh = mesh, .rule = rule, .options = in_blocks(rule, phases)};
  wish.capacity_bytes = 6'000;  // several rounds
  return wish;
}

// Adjacent blocks have different owners, in a different order in each matrix.
inline Plan block_plan(const PlanWish& wish) {
  return give_blocks(
      small_plan(blocked_model(), wish), [](size_t m, int32_t b) {
        return 3 * m + 5 * static_cast<size_t>(b) + static_cast<size_t>(b) / 3;
      });
}

}  // namespace canzona::runtime
