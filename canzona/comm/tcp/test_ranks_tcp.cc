// Ranks for tests that are threads of one process and share nothing but a
// meeting point.
#include <exception>
#include <thread>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/tcp/tcp_session.h"
#include "canzona/comm/test_ranks.h"

namespace canzona::comm {
namespace {

// A rank's own error takes precedence over that of a rank that lost a peer.
struct RankErrors {
  std::exception_ptr own, lost;
};

void run_rank(const TcpOptions& options, const CommunicatorOptions& wanted,
              const std::function<void(Communicator& world)>& function,
              RankErrors& errors) {
  try {
    TcpSession session(options);
    {
      Communicator world(session.make_world(), cpu_wire_ops(), wanted, "world");
      try {
        function(world);
      } catch (const std::exception& error) {
        session.abort(cat("rank ", options.rank, " failed: ", error.what()));
        throw;
      }
    }
    session.finish();
  } catch (const PeerLost&) {
    errors.lost = std::current_exception();
  } catch (...) {
    errors.own = std::current_exception();
  }
}

}  // namespace

void run_test_ranks(int num_ranks, const CommunicatorOptions& options,
                    const std::function<void(Communicator& world)>& function) {
  auto listener = std::make_shared<Socket>(listen_on({"127.0.0.1", 0}));
  const Endpoint meeting = own_endpoint(*listener);
  std::vector<RankErrors> errors(static_cast<size_t>(num_ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < num_ranks; ++rank)
      threads.emplace_back([&, rank] {
        run_rank({.meeting = meeting,
                  .rank = rank,
                  .num_ranks = num_ranks,
                  .token = "a test",
                  .listener = rank == 0 ? listener : nullptr},
                 options, function, errors[static_cast<size_t>(rank)]);
      });
  }
  for (const RankErrors& of : errors)
    if (of.own != nullptr) std::rethrow_exception(of.own);
  for (const RankErrors& of : errors)
    if (of.lost != nullptr) std::rethrow_exception(of.lost);
}

}  // namespace canzona::comm
