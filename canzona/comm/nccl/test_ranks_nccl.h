// For tests: ranks that are threads, each with a session of the NCCL stub.
// Their control plane is that of threads.
//
//   run_nccl_ranks(4, {}, [](NcclTestRank& rank) {
//     auto dp = rank.world.split_ordered(0, 0, "dp", rank.lane);
//   });
#pragma once

#include <functional>

#include "canzona/comm/communicator.h"
#include "canzona/comm/nccl/test_stub_nccl.h"

namespace canzona::comm {

struct NcclTestOptions {
  CommunicatorOptions communicator = {};
  NcclOptions nccl = {};
  TestLane::When when = TestLane::When::kLater;
  // Called before every piece of work on a rank's lane.
  std::function<void(int rank)> delay = {};
};

struct NcclTestRank {
  NcclSession& session;
  Communicator& world;  // of host memory
  std::shared_ptr<TestLane> lane;
};

// Rethrows like run_ranks().
void run_nccl_ranks(int num_ranks, const NcclTestOptions& options,
                    const std::function<void(NcclTestRank& rank)>& function);

}  // namespace canzona::comm
