// Owners inside one home: its matrices dealt to the tp ranks.
#pragma once

#include "canzona/plan/strategy.h"

namespace canzona {

// Sets a.owner of `matrices`, all of one home, so that the largest load over tp
// is small.
void deal_owners(const Problem& p, std::span<const int32_t> matrices,
                 Assignment& a);

}  // namespace canzona
