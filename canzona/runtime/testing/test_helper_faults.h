// Faults of owners, of their helpers and of ranks beside them, for tests.
//
//   FaultTrial trial = random_helper_fault(seed, words);
//   expect_fault_words(trial, run_fault(trial));
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "canzona/base/text.h"
#include "canzona/runtime/testing/test_fault_trials.h"
#include "canzona/runtime/testing/test_team_plans.h"

namespace canzona::runtime {

// A matrix with a helper, and the ranks that share it.
struct HelpedMatrix {
  std::string name;
  int32_t owner = 0;
  int32_t helper = 0;

  // As errors name it.
  std::string label() const {
    return cat(name, ", owner ", owner, ", helper ", helper);
  }
};

// Requires a mesh of dp and tp alone.
inline std::vector<HelpedMatrix> helped_matrices(const Plan& plan) {
  const PlanPart& part = plan.parts.front();
  std::vector<HelpedMatrix> list;
  for (size_t m = 0; m < part.matrices.size(); ++m) {
    const std::vector<int32_t> team(part.owners[m].begin(),
                                    part.owners[m].end());
    if (team.size() != 2) continue;
    const auto tensor = static_cast<size_t>(part.matrices[m].tensor);
    const int32_t first = part.home[tensor] * plan.mesh.tp;
    list.push_back(
        {part.model.tensors[tensor].name, first + team[0], first + team[1]});
  }
  return list;
}

// Returns the owner, its helper or, if there is one, a rank that is neither.
inline int32_t pick_rank(Random& dice, const HelpedMatrix& matrix,
                         int32_t world) {
  std::vector<int32_t> others;
  for (int32_t rank = 0; rank < world; ++rank)
    if (rank != matrix.owner && rank != matrix.helper) others.push_back(rank);
  if (others.empty()) others = {matrix.owner, matrix.helper};
  return dice.pick<int32_t>({matrix.owner, matrix.helper, dice.pick(others)});
}

inline bool shares_a_matrix(const Plan& plan, int32_t rank) {
  return std::ranges::any_of(
      helped_matrices(plan), [&](const HelpedMatrix& matrix) {
        return rank == matrix.owner || rank == matrix.helper;
      });
}

// Faults in refreshes and in other steps, half of those in collectives in an
// exchange of the chosen matrix. `words` describes the fault.
inline FaultTrial random_helper_fault(uint64_t seed, std::string& words) {
  Random dice(seed);
  const auto rule = dice.pick<std::string>({"soap", "shampoo"});
  const auto mesh =
      dice.pick<std::string>({"tp=2", "tp=4", "dp=2,tp=2", "dp=2,tp=4"});
  const auto frequency = dice.pick<std::string>({"1", "3"});
  FaultTrial trial;
  trial.plan = partly_helped_plan(
      mesh,
      [&](size_t m) {
        return m == 0 ? 2 : dice.pick<int32_t>({1, 2});
      },
      {{"precondition_frequency", frequency}}, "zero1", rule);
  const HelpedMatrix matrix = dice.pick(helped_matrices(trial.plan));
  trial.victim = pick_rank(dice, matrix, trial.plan.mesh.world());
  trial.kind = dice.pick(kAllFaults);
  // Nobody waits in exchanges for a rank that shares nothing, so that its
  // thread may stall in one unnoticed.
  if (trial.kind == Fault::kStallInOperation &&
      !shares_a_matrix(trial.plan, trial.victim))
    trial.kind = Fault::kThrowInOperation;
  trial.moment = dice.next();
  trial.step = dice.pick<int64_t>({2, 3, 4});
  // Ranks of another home have no such exchange.
  const int32_t tp = trial.plan.mesh.tp;
  if (is_in_operation(trial.kind) && dice.pick<bool>({false, true}) &&
      trial.victim / tp == matrix.owner / tp)
    trial.label = matrix.name + ", ";
  words =
      cat("trial ", seed, ": ", rule, " ", mesh, ", refresh every ", frequency,
          ", ", matrix.label(), ", kind ", static_cast<int>(trial.kind),
          ", rank ", trial.victim, ", step ", trial.step);
  return trial;
}

}  // namespace canzona::runtime
