// Checks the invariants of a plan and lists every violation, not only the
// first: each element of each tensor has exactly one place per TP plane, each
// matrix has exactly one owner or team, routes are exact partitions in both
// directions, and budgets hold.
//
//   std::vector<std::string> violations = validate(plan);   // empty: sound
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/team_schedule.h"

namespace canzona {

// Checks routes in both directions: every element of a matrix comes from
// exactly one tp rank (or, if uncut, from each), and every element of a shard
// goes back once.
void check_routes(const PlanPart& part, std::vector<std::string>& violations);

std::vector<std::string> validate(const Plan& plan);

// Checks the ranks that share a matrix, wherever its pieces are stored: a team
// has 2, 4 or 8 different ranks and no more than the matrix has strips, or is
// an owner and its helper; of a matrix with independent blocks every block has
// one owner; and they are not more than `teams` allows in a home of
// `home_size` ranks. Messages begin with `matrix`.
void check_sharing(ShareTable& shares, size_t number, const std::string& matrix,
                   std::span<const int32_t> owners, int32_t teams,
                   int32_t home_size, std::vector<std::string>& violations);

// Reports one line for all ranks, since they share one cap (0: none). Every
// rank needs `activations` bytes beside its plan.
void check_memory_cap(int64_t cap, const std::vector<RankCost>& ranks,
                      int64_t activations,
                      std::vector<std::string>& violations);

}  // namespace canzona
