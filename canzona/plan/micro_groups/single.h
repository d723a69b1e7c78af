// Each matrix a round of its own, owners round-robin over tp: in plan order
// (`none`), or largest first (`sorted`).
#pragma once

#include "canzona/plan/strategy.h"

namespace canzona {

void assign_rounds_in_order(const Problem& p, std::span<const int32_t> matrices,
                            bool owners_known, Assignment& a);
void assign_rounds_sorted(const Problem& p, std::span<const int32_t> matrices,
                          bool owners_known, Assignment& a);

}  // namespace canzona
