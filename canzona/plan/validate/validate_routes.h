// Routes checked both ways: every element of a matrix comes from exactly one tp
// rank (or, uncut, from each), and every element of a shard goes back once.
#pragma once

#include <string>
#include <vector>

#include "canzona/plan/plan.h"

namespace canzona {

void check_routes(const PlanPart& part, std::vector<std::string>& violations);

}  // namespace canzona
