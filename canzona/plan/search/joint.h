// The best bundles the search can find: several starts, each improved by
// exchanges, the best kept by (objective, largest cost per home, largest memory
// per home).
#pragma once

#include "canzona/plan/search/bundles.h"

namespace canzona {

// `blocks` has one entry per rank; home h is ranks [h·tp, (h+1)·tp). With alpha
// below 1 homes are kept near the share of elements that the budget on bytes
// allows, before their cost is leveled.
Bundles search_bundles(const std::vector<ItemClass>& classes,
                       const std::vector<int64_t>& steps,
                       const std::vector<int32_t>& blocks, int32_t tp,
                       double alpha = 1);

// Lower bound on the objective of any assignment.
int64_t objective_bound(const std::vector<ItemClass>& classes,
                        const std::vector<int64_t>& steps,
                        const std::vector<int32_t>& blocks, int64_t upper);

}  // namespace canzona
