// Checks a plan of given storage against its promises and lists every
// violation, not the first: every element is stored, every matrix has an owner
// that stores a piece of it, what moves has a round and what stays has none,
// rounds keep the capacity, classes, costs, figures and digest are those of the
// request and the decisions.
#pragma once

#include <string>
#include <vector>

#include "canzona/plan/placed/placed_plan.h"

namespace canzona {

std::vector<std::string> validate(const PlacedPlan& plan);

}  // namespace canzona
