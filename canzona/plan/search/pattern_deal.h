// A start for the search from the pattern relaxation: whole multiples of the
// fractional patterns first, then ranks filled as full as possible, the rest
// longest first.
#pragma once

#include "canzona/plan/search/bundles.h"

namespace canzona {

// Deals all items to the empty `bundles`, aiming at loads ≤ `capacity`. False,
// and nothing dealt, if the relaxation does not apply: several dimensions,
// blocks, or more sizes than it takes.
bool deal_by_patterns(Bundles& bundles, int64_t capacity);

// The sizes of all items in the only dimension.
std::vector<int64_t> distinct_loads(const std::vector<ItemClass>& classes);

}  // namespace canzona
