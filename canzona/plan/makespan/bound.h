// Lower bounds on the makespan tell how good a plan can be at best.
//
//   int64_t bound = lower_bound(sizes, ranks, best_known);
#pragma once

#include <cstdint>
#include <span>

#include "canzona/plan/makespan/sizes.h"

namespace canzona {

// max(mean, largest, R-th + (R+1)-th largest).
int64_t simple_bound(std::span<const SizeCount> items, int64_t ranks);

// simple_bound and, for at most kMaxPatternSizes sizes, the smallest T for
// which the linear relaxation over all patterns of load ≤ T needs at most
// `ranks` ranks. `upper` is a makespan that is known to be reached.
int64_t lower_bound(std::span<const SizeCount> items, int64_t ranks,
                    int64_t upper);

}  // namespace canzona
