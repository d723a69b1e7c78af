// The best bundles the search can find: several starts, each improved by
// exchanges, the best kept by (objective, largest cost per home, largest memory
// per home).
#pragma once

#include "canzona/plan/search/bundles.h"

namespace canzona {

// A start for the search from the pattern relaxation: whole multiples of the
// fractional patterns first, then ranks filled as full as possible, the rest
// longest first.

// Deals all items to the empty `bundles`, aiming at loads ≤ `capacity`. False,
// and nothing dealt, if the relaxation does not apply: several dimensions,
// blocks, or more sizes than it takes.
bool deal_by_patterns(Bundles& bundles, int64_t capacity);

// The sizes of all items in the only dimension.
std::vector<int64_t> distinct_loads(const std::vector<ItemClass>& classes);

// Homes may keep at most this: `share` bounds their elements as a multiple of
// the mean (0: unbounded), `memory` the bytes of states of all tp ranks of a
// home. With `mixed`, bundles that longest-first dealing made are preferred to
// patterns if they are nearly as good: patterns put equal items together, which
// makes bytes hard to level.
struct Budgets {
  double share = 0;
  int64_t memory = INT64_MAX;
  bool mixed = false;
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

// The same for items whose blocks are numbers of sets of owners, which may
// overlap (bundles.h). There are no homes and no budgets.
Bundles search_bundles(const std::vector<ItemClass>& classes,
                       const std::vector<int64_t>& steps, size_t num_ranks,
                       const OwnerSets& sets);
int64_t objective_bound(const std::vector<ItemClass>& classes,
                        const std::vector<int64_t>& steps, size_t num_ranks,
                        const OwnerSets& sets, int64_t upper);

}  // namespace canzona
