// The best bundles the search can find: several starts, each improved by
// exchanges, the best kept by (objective, largest cost per home, largest memory
// per home).
#pragma once

#include "canzona/plan/search/bundles.h"

namespace canzona {

// What homes may keep: `alpha` bounds their share of elements as it bounds their
// share of every bucket, `memory` the bytes of states of all tp ranks of a home.
struct Budgets {
  double alpha = 1;
  int64_t memory = INT64_MAX;
};

// `blocks` has one entry per rank; home h is ranks [h·tp, (h+1)·tp).
Bundles search_bundles(const std::vector<ItemClass>& classes,
                       const std::vector<int64_t>& steps,
                       const std::vector<int32_t>& blocks, int32_t tp,
                       const Budgets& budgets);

// Lower bound on the objective of any assignment.
int64_t objective_bound(const std::vector<ItemClass>& classes,
                        const std::vector<int64_t>& steps,
                        const std::vector<int32_t>& blocks, int64_t upper);

}  // namespace canzona
