// Owners of blocks: where a rule's matrices fall apart (RuleFacts::block), the
// ranks of a home own blocks of a matrix, with the states of these, so that a
// long matrix is no longer what one rank has to do alone (docs/algorithms.md).
#pragma once

#include "canzona/plan/strategy.h"

namespace canzona {

// Changes owners and rounds of homes that would be the slowest, with homes as
// they are. Nothing changes where matrices do not fall apart, or it would not
// pay.
void own_blocks(const PlanPart& part, const Problem& p, Assignment& a);

}  // namespace canzona
