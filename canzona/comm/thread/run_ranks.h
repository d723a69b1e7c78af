// Runs a function on n ranks, each a thread of this process with a communicator
// of all ranks.
//
//   run_ranks(4, [&](Communicator& world) {
//     world.all_reduce(Reduction::kFp32Sum, bytes_of(mine[world.rank()]));
//   });
//
// Returns when all threads have ended. If ranks throw, all others are woken and
// the original error is rethrown: that of the lowest rank that threw something
// other than PeerLost, otherwise the first PeerLost.
#pragma once

#include <functional>

#include "canzona/comm/communicator.h"
#include "canzona/comm/thread/thread_world.h"

namespace canzona {

struct RunOptions {
  CommunicatorOptions communicator = {};
  ThreadWorld::Options world = {};
};

using RankFunction = std::function<void(Communicator& world)>;

void run_ranks(int num_ranks, const RankFunction& function);
void run_ranks(int num_ranks, const RunOptions& options,
               const RankFunction& function);

}  // namespace canzona
