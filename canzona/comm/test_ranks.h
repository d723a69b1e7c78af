// For tests: n ranks of whatever the test program is linked with, threads
// (test_ranks.cc) or processes (mpi/test_ranks_mpi.cc).
//
//   run_test_ranks(4, [](Communicator& world) { world.barrier(); });
//
// Ranks share no memory then: what they tell each other goes through `world`.
// Processes beyond n do nothing; where there are fewer, nobody does.
#pragma once

#include <functional>

#include "canzona/comm/communicator.h"

namespace canzona {

void run_test_ranks(int num_ranks, const CommunicatorOptions& options,
                    const std::function<void(Communicator& world)>& function);

inline void run_test_ranks(
    int num_ranks, const std::function<void(Communicator& world)>& function) {
  run_test_ranks(num_ranks, {}, function);
}

}  // namespace canzona
