// The alpha-balanced partition: order kept, cut points of each bucket moved to
// tensor borders so that ranks with less load get more. Buckets are taken
// largest first. Shares blend even parts (alpha 0) with what each rank lacks
// (alpha 1).
#pragma once

#include "canzona/plan/strategy.h"

namespace canzona {

void assign_contiguous(const Problem& p, Assignment& a);

}  // namespace canzona
