// Whole tensors to dp ranks by one global LPT, wherever they lie: gradients are
// all-reduced, every tp rank of the owner's home repeats the update, and
// weights are broadcast inside the step.
#pragma once

#include "canzona/plan/strategy.h"

namespace canzona {

void assign_layerwise(const Problem& p, Assignment& a);

}  // namespace canzona
