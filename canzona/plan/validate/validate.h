// Checks a plan against its promises and lists every violation, not the first:
// each element of each tensor has exactly one place per TP plane, each matrix
// exactly one owner or team, routes are exact partitions both ways, budgets
// hold.
//
//   std::vector<std::string> violations = validate(plan);   // empty: sound
#pragma once

#include <string>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/predict/predict.h"

namespace canzona {

// Routes checked both ways: every element of a matrix comes from exactly one tp
// rank (or, uncut, from each), and every element of a shard goes back once.

void check_routes(const PlanPart& part, std::vector<std::string>& violations);

std::vector<std::string> validate(const Plan& plan);

// One line for all ranks: with one cap (0: none), their violations are alike.
// Every rank needs `activations` bytes beside its plan.
void check_memory_cap(int64_t cap, const std::vector<RankCost>& ranks,
                      int64_t activations,
                      std::vector<std::string>& violations);

}  // namespace canzona
