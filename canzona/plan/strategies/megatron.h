// Today's Megatron-Core: inside each bucket the dearest tensor first to the
// rank with the least compute so far, no rank above (1 + 30 %) of the even
// share if that can be helped; tensors re-ordered, every shard padded to the
// largest.
#pragma once

#include "canzona/plan/strategy.h"

namespace canzona {

void assign_megatron(const Problem& p, Assignment& a);

}  // namespace canzona
