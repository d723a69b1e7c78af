// The operations of one rank under a plan, module by module.
//
//   for (const ModuleWork& m : rank_transfers(plan, workload, rank)) …
//
// Bytes are the plan's own; messages are those of the runtime's pairwise
// exchanges: one per peer and, for sums, per segment. Compute times are left at
// 0.
#pragma once

#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/sim/plan_iteration.h"
#include "canzona/sim/workload.h"

namespace canzona {

// Runs of homes differ. A rank's share of a sum and of new parameters follows
// from its own run, or from the longest of all, because no rank continues
// before the home that has most.
enum class RunOf { kThisRank, kLongest };

std::vector<ModuleWork> rank_transfers(const Plan& plan,
                                       const Workload& workload,
                                       int32_t world_rank,
                                       RunOf run = RunOf::kThisRank);

}  // namespace canzona
