// Teams of a plan: ranks of a home share matrices where the step is predicted
// to be shorter by that (docs/algorithms.md).
#pragma once

#include <string>

#include "canzona/plan/strategy.h"

namespace canzona {

// Teams must make the step at least so much shorter, and are not looked for
// where whole owners are so close to the bound.
inline constexpr double kWorthTeams = 0.97;

// Why a request has no teams whatever --teams says: "homes of one rank"; empty
// where it may have them. `request` has its parts, of which nothing needs to
// be decided.
std::string why_no_teams(const Plan& request, const RuleFacts& rule);

// UsageError if --teams names a size that the request cannot have.
void check_teams(const Plan& request, const RuleFacts& rule);

// Changes owners and rounds of homes where teams pay, with homes as they are.
void share_matrices(const PlanPart& part, const Problem& p, Assignment& a);

}  // namespace canzona
