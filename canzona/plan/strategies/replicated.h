// The simplest baseline: gradients are all-reduced over dp and all-gathered
// over tp; every rank repeats every update and keeps all states.
#pragma once

#include "canzona/plan/strategy.h"

namespace canzona {

void assign_replicated(const Problem& p, Assignment& a);

}  // namespace canzona
