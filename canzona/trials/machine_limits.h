// What bounds every figure of a run: how fast ranks multiply and copy, one
// alone and all at once. All ranks call at once.
#pragma once

#include "canzona/comm/communicator.h"
#include "canzona/linalg/engine.h"

namespace canzona {

// Of one rank: while all others sleep, and the slowest while all work.
struct SharedRate {
  double alone = 0;
  double together = 0;
};

struct MachineLimits {
  SharedRate flops;   // in a second, fp32 products
  SharedRate copies;  // bytes in a second
};

MachineLimits measure_limits(Communicator& world, Engine& engine);

}  // namespace canzona
