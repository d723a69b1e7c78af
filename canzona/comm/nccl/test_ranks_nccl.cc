#include "canzona/comm/nccl/test_ranks_nccl.h"

#include <exception>
#include <numeric>
#include <thread>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/test_ranks.h"
#include "canzona/comm/thread/thread_world.h"

namespace canzona::comm {
namespace {

// A rank's own error takes precedence over that of a rank that lost a peer.
struct NcclRankErrors {
  std::exception_ptr own, lost;
};

void run_nccl_rank(const std::shared_ptr<ThreadWorld>& threads, int rank,
                   const NcclTestOptions& options,
                   const std::function<void(NcclTestRank& rank)>& function,
                   NcclRankErrors& errors) {
  try {
    std::function<void()> delay;
    if (options.delay) delay = [&options, rank] { options.delay(rank); };
    const auto lane = std::make_shared<TestLane>(options.when, rank, delay);
    NcclOptions own = options.nccl;
    own.deadline = options.communicator.deadline;
    NcclSession session(make_thread_transport(threads, rank), stub_nccl(), own);
    try {
      Communicator world(session.make_world(), cpu_wire_ops(),
                         options.communicator, "world");
      NcclTestRank given{session, world, lane};
      function(given);
    } catch (const std::exception& error) {
      session.abort(cat("rank ", rank, " failed: ", error.what()));
      throw;
    }
    session.finish(options.communicator.deadline);
  } catch (const PeerLost&) {
    errors.lost = std::current_exception();
  } catch (...) {
    errors.own = std::current_exception();
  }
}

}  // namespace

void run_nccl_ranks(int num_ranks, const NcclTestOptions& options,
                    const std::function<void(NcclTestRank& rank)>& function) {
  const auto threads =
      std::make_shared<ThreadWorld>(num_ranks, ThreadWorld::Options{});
  std::vector<NcclRankErrors> errors(static_cast<size_t>(num_ranks));
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < num_ranks; ++rank)
      ranks.emplace_back([&, rank] {
        run_nccl_rank(threads, rank, options, function,
                      errors[static_cast<size_t>(rank)]);
      });
  }
  for (const NcclRankErrors& of : errors)
    if (of.own != nullptr) std::rethrow_exception(of.own);
  for (const NcclRankErrors& of : errors)
    if (of.lost != nullptr) std::rethrow_exception(of.lost);
}

// Groups of NCCL must pass the tests that threads pass.
void run_test_ranks(int num_ranks, const CommunicatorOptions& options,
                    const std::function<void(Communicator& world)>& function) {
  run_nccl_ranks(
      num_ranks, {.communicator = options, .when = TestLane::When::kAtOnce},
      [&](NcclTestRank& rank) {
        std::vector<int> all(static_cast<size_t>(num_ranks));
        std::iota(all.begin(), all.end(), 0);
        Communicator world(
            rank.session.make_world()->ordered_subgroup(
                all, 0, 0, deadline_after(options.deadline), rank.lane),
            rank.lane->ops(), options, "world");
        function(world);
      });
}

}  // namespace canzona::comm
