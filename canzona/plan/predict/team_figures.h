// Figures of a plan that follow from its teams.
#pragma once

#include <cstdint>
#include <map>

#include "canzona/plan/plan.h"

namespace canzona {

// The longest path of a team, 0 without teams.
int64_t longest_team_path(const PlanPart& part);

// How many matrices teams of each size share.
std::map<int32_t, int64_t> teams_by_size(const Plan& plan);

// No plan with such teams has a smaller makespan (makespan/team_sizes.h).
Ticks team_bound_of(const Plan& plan);
Ticks team_bound_of(const PlanPart& part);

}  // namespace canzona
