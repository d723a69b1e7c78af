// For tests: n ranks of the kind that the test program is linked with, threads
// (test_ranks.cc) or processes (mpi/test_ranks_mpi.cc).
//
//   run_test_ranks(4, [](Communicator& world) { world.barrier(); });
//
// Tests must not rely on shared memory: ranks communicate through `world`.
// Processes beyond n do nothing; if there are fewer than n, none does anything.
#pragma once

#include <functional>

#include "canzona/comm/communicator.h"

namespace canzona::comm {

void run_test_ranks(int num_ranks, const CommunicatorOptions& options,
                    const std::function<void(Communicator& world)>& function);

inline void run_test_ranks(
    int num_ranks, const std::function<void(Communicator& world)>& function) {
  run_test_ranks(num_ranks, {}, function);
}

}  // namespace canzona::comm
