// Measures what ranks on one machine take from each other: caches, memory,
// clock rate.
//
//   double copies = measure_copy_rate(world);
//   SharedProducts products =
//       measure_shared_products(world, *engine, DType::kFp32);
//   products.efficiency();   // 1: sixteen are as fast as one
//
// All ranks call at once.
#pragma once

#include "canzona/comm/communicator.h"
#include "canzona/linalg/engine.h"

namespace canzona {

// Bytes in a second that a rank copies: rank 0 while all others sleep, and the
// slowest while all do.
struct SharedCopies {
  double alone = 0;
  double together = 0;
};
SharedCopies measure_shared_copies(Communicator& world);
// While all do.
double measure_copy_rate(Communicator& world);

// Seconds in which background threads of all ranks meet once, with no data:
// while nothing else goes on, and while all ranks compute. An operation costs
// this beside its bytes: threads wake up late, and the last one counts.
struct SharedMeetings {
  double idle = 0;
  double beside_compute = 0;
};
SharedMeetings measure_shared_meetings(Communicator& world, Engine& engine);

// Seconds of the same products, median of several rounds: rank 0's while all
// others sleep, and the slowest rank's of each round while all compute. So are
// steps measured.
struct SharedProducts {
  double alone = 0;
  double together = 0;
  double efficiency() const { return together > 0 ? alone / together : 1; }
};
// In fp32, or as Newton–Schulz multiplies in bf16.
SharedProducts measure_shared_products(Communicator& world, Engine& engine,
                                       DType precision);

// The same as flops in a second of one rank, fp32, in a fifth of the time.
struct SharedFlops {
  double alone = 0;
  double together = 0;
};
SharedFlops measure_shared_flops(Communicator& world, Engine& engine);
// While all compute, by a few products.
double measure_flop_rate(Communicator& world, Engine& engine, DType precision);

// These limits bound every figure of a run.
struct MachineLimits {
  SharedFlops flops;    // in a second, fp32 products
  SharedCopies copies;  // bytes in a second
  SharedMeetings meetings;
};
MachineLimits measure_limits(Communicator& world, Engine& engine);

}  // namespace canzona
