// `--zero auto`: every choice planned and its iteration predicted.
//
//   ZeroSearch search = search_zero(request, workload, {"balanced"});
//
// The cap is the request's memory_cap_bytes, what is compared with it the
// memory that Canzona allocates on the fullest rank. Choices that make_plan
// refuses stay in the ranking with its reason.
#pragma once

#include <string>
#include <vector>

#include "canzona/plan/make_plan.h"
#include "canzona/sim/plan_iteration.h"
#include "canzona/sim/search.h"

namespace canzona {

// `sizes` in the request's options are ignored. No strategy: the request's own.
ZeroSearch search_zero(const PlanRequest& request, const Workload& workload,
                       std::vector<std::string> strategies = {});

// One choice of them; UsageError as make_plan throws it.
ZeroWeight weigh_zero(PlanRequest request, const Workload& workload,
                      const ZeroChoice& choice);

}  // namespace canzona
