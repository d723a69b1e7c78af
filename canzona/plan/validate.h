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

namespace canzona {

std::vector<std::string> validate(const Plan& plan);

}  // namespace canzona
