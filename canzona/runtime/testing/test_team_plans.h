// Plans whose matrices are shared by teams, whether that pays or not, for the
// tests of this folder.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "canzona/runtime/testing/test_plans.h"

namespace canzona::runtime {

// Wide and tall matrices, cut along the strips and across them, one that every
// rank has, one with a single row, one with a side that is no multiple of 64,
// and one without strips.
inline Model shared_model() {
  std::vector<Tensor> tensors;
  tensors.push_back(matrix_tensor("wide.rows", 24, 520, Cut::kRows));
  tensors.push_back(matrix_tensor("wide.columns", 40, 576, Cut::kColumns));
  tensors.push_back(matrix_tensor("tall.rows", 536, 16, Cut::kRows));
  tensors.push_back(matrix_tensor("tall.columns", 640, 24, Cut::kColumns));
  tensors.push_back(matrix_tensor("everywhere", 12, 531, Cut::kNone));
  tensors.push_back(matrix_tensor("row", 1, 512, Cut::kColumns));
  tensors.push_back(matrix_tensor("small", 16, 24, Cut::kRows));
  tensors.push_back(adamw_tensor("norm", 48));
  return model_of(std::move(tensors));
}

// Chooses the team sizes of a plan's matrices.
using TeamSizeOf = std::function<int32_t(size_t matrix)>;

inline Plan share_matrices(Plan plan, const TeamSizeOf& size_of) {
  plan.options.teams = kTeamsAuto;
  for (PlanPart& part : plan.parts) {
    part.options.teams = kTeamsAuto;
    const auto facts = make_rule_facts(part.rule, part.rule_options);
    OwnerLists owners;
    for (size_t m = 0; m < part.matrices.size(); ++m) {
      const Matrix& matrix = part.matrices[m];
      const int most = facts->strips({matrix.rows, matrix.cols}).most_ranks();
      const int32_t size =
          std::min({size_of(m), part.grid.tp, static_cast<int32_t>(most)});
      std::vector<int32_t> team;
      for (int32_t i = 0; i < size; ++i)
        team.push_back(
            static_cast<int32_t>((3 * m + static_cast<size_t>(i) * 3) %
                                 static_cast<size_t>(part.grid.tp)));
      if (size <= 1 || part.owners[m].empty())
        owners.push_back(part.owners[m]);
      else
        owners.push_back(team);
    }
    part.owners = owners;
  }
  return plan;
}

inline RuleOptions strips(int count, const std::string& form = "auto",
                          const std::string& precision = "auto") {
  return {{"strips", std::to_string(count)},
          {"newton_schulz", form},
          {"precision", precision}};
}

inline Plan team_plan(const std::string& mesh, const RuleOptions& options,
                      const TeamSizeOf& sizes,
                      const std::string& device = "cpu") {
  PlanWish wish{.mesh = mesh, .options = options, .device = device};
  wish.capacity_bytes = 200'000;
  return share_matrices(small_plan(shared_model(), wish), sizes);
}

// SOAP with one factor, except for the matrix `small`, which has two and may
// have a helper.
inline RuleOptions one_factor(int strips, const RuleOptions& more = {}) {
  RuleOptions options = {{"precondition_frequency", "3"},
                         {"max_preconditioner_dim", "100"},
                         {"strips", std::to_string(strips)}};
  for (const auto& [name, value] : more) options[name] = value;
  return options;
}

inline Plan soap_team_plan(const std::string& mesh, const RuleOptions& options,
                           const TeamSizeOf& sizes,
                           const std::string& zero = "zero1",
                           const std::string& device = "cpu") {
  PlanWish wish{
      .mesh = mesh, .rule = "soap", .options = options, .device = device};
  wish.zero = zero;
  wish.capacity_bytes = 200'000;
  return share_matrices(small_plan(shared_model(), wish), sizes);
}

// Matrices with two factors, cut along rows and columns or not at all, some
// with sides of one.
inline Model square_model() {
  std::vector<Tensor> tensors;
  tensors.push_back(matrix_tensor("square", 32, 32, Cut::kRows));
  tensors.push_back(matrix_tensor("wide", 16, 48, Cut::kColumns));
  tensors.push_back(matrix_tensor("tall", 40, 24, Cut::kRows));
  tensors.push_back(matrix_tensor("everywhere", 12, 21, Cut::kNone));
  tensors.push_back(matrix_tensor("row", 1, 24, Cut::kColumns));
  tensors.push_back(matrix_tensor("column", 24, 1, Cut::kRows));
  tensors.push_back(matrix_tensor("number", 1, 1, Cut::kNone));
  tensors.push_back(adamw_tensor("norm", 48));
  return model_of(std::move(tensors));
}

// Such matrices, with a helper where `sizes` says 2.
inline Plan partly_helped_plan(const std::string& mesh, const TeamSizeOf& sizes,
                               const RuleOptions& more = {},
                               const std::string& zero = "zero1",
                               const std::string& rule = "soap",
                               const std::string& device = "cpu") {
  PlanWish wish{
      .mesh = mesh, .rule = rule, .options = quick(rule), .device = device};
  for (const auto& [name, value] : more) wish.options[name] = value;
  wish.zero = zero;
  wish.capacity_bytes = 200'000;
  return share_matrices(small_plan(square_model(), wish), sizes);
}
// Each with a helper or each without one.
inline Plan helper_plan(const std::string& mesh, bool helped,
                        const RuleOptions& more = {},
                        const std::string& zero = "zero1",
                        const std::string& rule = "soap",
                        const std::string& device = "cpu") {
  return partly_helped_plan(
      mesh, [=](size_t) { return helped ? 2 : 1; }, more, zero, rule, device);
}

}  // namespace canzona::runtime
