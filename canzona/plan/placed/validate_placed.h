// Checks the invariants of a plan for a given storage layout and lists every
// violation, not only the first: every element is stored; every matrix has an
// owner that stores a piece of it; matrices that move have a round and others
// have none; rounds respect the capacity; classes, costs, figures and digest
// follow from the request and the decisions.
#pragma once

#include <string>
#include <vector>

#include "canzona/plan/placed/placed_plan.h"

namespace canzona {

std::vector<std::string> validate(const PlacedPlan& plan);

}  // namespace canzona
