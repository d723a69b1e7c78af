// The layout of buckets: tensors in order, and where each home's run begins.
#pragma once

#include "canzona/plan/strategy.h"

namespace canzona {

// Buckets of a finished assignment. If the order is free, tensors of one home
// lie side by side; AdamW tensors come last and are cut evenly, or so that
// state bytes are level over homes.
std::vector<Bucket> lay_out(const Problem& p, const Strategy& strategy,
                            const Assignment& a);

}  // namespace canzona
