// What bounds every figure of a run: how fast ranks multiply and copy, one
// alone and all at once, and what it costs them to meet. All ranks call at
// once.
#pragma once

#include "canzona/measure/shared_machine.h"

namespace canzona {

struct MachineLimits {
  SharedFlops flops;    // in a second, fp32 products
  SharedCopies copies;  // bytes in a second
  SharedMeetings meetings;
};

inline MachineLimits measure_limits(Communicator& world, Engine& engine) {
  const SharedFlops flops = measure_shared_flops(world, engine);
  const SharedCopies copies = measure_shared_copies(world);
  return {flops, copies, measure_shared_meetings(world, engine)};
}

}  // namespace canzona
