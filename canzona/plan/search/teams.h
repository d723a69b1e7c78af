// Teams of a plan: ranks of a home share matrices if that is predicted to
// shorten the step (docs/algorithms.md).
#pragma once

#include <string>

#include "canzona/plan/layout/problem.h"

namespace canzona {

// Teams must shorten the step to at most this fraction, and are not tried if
// whole owners are this close to the bound.
inline constexpr double kWorthTeams = 0.97;

// Returns why a request cannot have teams whatever --teams says, e.g. "homes of
// one rank"; empty if it can. `request` needs its parts, but no decisions.
std::string why_no_teams(const Plan& request, const RuleFacts& rule);

// Throws UsageError if --teams names a size that the request cannot have.
void check_teams(const Plan& request, const RuleFacts& rule);

// Changes owners and rounds in homes where teams pay; the homes of tensors
// stay.
void share_matrices(const PlanPart& part, const Problem& p, Assignment& a);

}  // namespace canzona
