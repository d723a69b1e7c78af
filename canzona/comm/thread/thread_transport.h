// Ranks as threads of one process.
//
//   auto world = std::make_shared<ThreadWorld>(4, ThreadWorld::Options{});
//   Communicator rank_0(make_thread_transport(world, 0), …);
//
// Waiting is sleeping: no rank spins. See run_ranks.h for the usual way in.
#pragma once

#include <memory>

#include "canzona/comm/thread/thread_world.h"
#include "canzona/comm/transport.h"

namespace canzona {

// One for each rank of the world, each for one thread.
std::unique_ptr<Transport> make_thread_transport(
    std::shared_ptr<ThreadWorld> world, int rank);

}  // namespace canzona
