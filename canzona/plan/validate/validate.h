// Checks the invariants of a plan and lists every violation, not only the
// first: each element of each tensor has exactly one place per TP plane, each
// matrix has exactly one owner or team, routes are exact partitions in both
// directions, and budgets hold.
//
//   std::vector<std::string> violations = validate(plan);   // empty: sound
#pragma once

#include <string>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/predict/predict.h"

namespace canzona {

// Checks routes in both directions: every element of a matrix comes from
// exactly one tp rank (or, if uncut, from each), and every element of a shard
// goes back once.
void check_routes(const PlanPart& part, std::vector<std::string>& violations);

std::vector<std::string> validate(const Plan& plan);

// Reports one line for all ranks, since they share one cap (0: none). Every
// rank needs `activations` bytes beside its plan.
void check_memory_cap(int64_t cap, const std::vector<RankCost>& ranks,
                      int64_t activations,
                      std::vector<std::string>& violations);

}  // namespace canzona
