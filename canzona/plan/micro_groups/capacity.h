// The published greedy: matrices largest first into the open micro-group as
// long as longest-first dealing keeps every owner within the capacity; else the
// group is closed ("rollback") and a new one begins. Loads start at zero in
// each group.
#pragma once

#include "canzona/plan/strategy.h"

namespace canzona {

// UsageError names a matrix that alone exceeds the capacity.
void assign_capacity(const Problem& p, std::span<const int32_t> matrices,
                     bool owners_known, Assignment& a);

}  // namespace canzona
