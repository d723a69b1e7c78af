// How fast a kernel is at best: the bare loop over packed blocks that lie in
// the second-level cache, without anything before or after it. What is left of
// that in a real product is the price of everything else.
#pragma once

#include "canzona/linalg/engine.h"

namespace canzona {

// 10⁹ operations per second of one thread.
double measure_packed_gflops(Bf16Kernel kernel);

}  // namespace canzona
