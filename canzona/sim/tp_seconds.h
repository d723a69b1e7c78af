// Sums over the ranks that share every product (tensor parallelism): compute
// waits for each of them.
//
// A layer has two in forward and two in backward, over all activations of a
// micro-batch; the embedding has one in forward, the head one in backward.
// Recomputation repeats those of a layer's forward.
#pragma once

#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/sim/workload.h"

namespace canzona {

// The time of one such sum; 0 if tp = 1 or the width of activations is not
// known.
double tp_sum_seconds(const Plan& plan, const Workload& workload);

// Adds them to the passes, by module.
void add_tp_sums(const Plan& plan, const Workload& workload,
                 std::vector<PassSeconds>& modules);

}  // namespace canzona
