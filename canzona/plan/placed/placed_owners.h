// Who computes which matrix.
#pragma once

#include "canzona/plan/placed/placed_basis.h"
#include "canzona/plan/placed/placed_plan.h"

namespace canzona {

// Sets the owner of every matrix, one of its holders, so that the makespan is
// small; and the lines of shared element-wise tensors, so that lines keep about
// as many elements.
void decide_owners(const PlacedBasis& basis, PlacedPlan& plan);

// Lower bound on the makespan of any owners; `upper` is one that is reached.
Ticks placed_bound(const PlacedBasis& basis, const PlacedPlan& plan,
                   Ticks upper);

}  // namespace canzona
