// Cuts AdamW tensors. They have no owner and may be cut anywhere, so they are
// what levels memory.
#pragma once

#include "canzona/plan/strategy.h"

namespace canzona {

// Equal shares of each bucket's AdamW elements.
void cut_adamw_evenly(const Problem& p, std::vector<Bucket>& buckets);

// Shares such that master weights and states take the same bytes on every home,
// as far as the AdamW elements of a buffer suffice. Every bucket is cut in the
// same proportions.
void cut_adamw_level(const Problem& p, const Assignment& a,
                     std::vector<Bucket>& buckets);

}  // namespace canzona
