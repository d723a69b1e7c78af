// Searches for the best bundles: several starts, each improved by exchanges;
// the best by (objective, largest cost per home, largest memory per home) is
// kept.
#pragma once

#include "canzona/plan/search/bundles.h"

namespace canzona {

// A start for the search from the pattern relaxation: first whole multiples of
// the fractional patterns, then ranks filled as full as possible, then the rest
// longest first.

// Deals all items to the empty `bundles`, aiming at loads ≤ `capacity`. Returns
// false, dealing nothing, if the relaxation does not apply: several dimensions,
// zones, or too many sizes.
bool deal_by_patterns(Bundles& bundles, int64_t capacity);

// Returns the distinct loads of all items in the only dimension.
std::vector<int64_t> distinct_loads(const std::vector<ItemClass>& classes);

// Limits of a home: `share` bounds its elements as a multiple of the mean (0:
// unbounded), `memory` the bytes of states of all its tp ranks. With `mixed`,
// bundles from longest-first dealing are preferred to patterns if they are
// nearly as good: patterns put equal items together, which makes bytes hard to
// level.
struct Budgets {
  double share = 0;
  int64_t memory = INT64_MAX;
  bool mixed = false;
};

// `zones` has one entry per rank; home h is ranks [h·tp, (h+1)·tp).
Bundles search_bundles(const std::vector<ItemClass>& classes,
                       const std::vector<int64_t>& steps,
                       const std::vector<int32_t>& zones, int32_t tp,
                       const Budgets& budgets);

// The same for items whose zones are numbers of sets of owners, which may
// overlap (bundles.h), without homes and budgets.
Bundles search_bundles(const std::vector<ItemClass>& classes,
                       const std::vector<int64_t>& steps, size_t num_ranks,
                       const OwnerSets& sets);

}  // namespace canzona
