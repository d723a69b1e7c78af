#include "canzona/comm/thread/run_ranks.h"

#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/thread/thread_transport.h"

namespace canzona {
namespace {

// How near an error is to what began it all.
enum class Kind { kOwn, kFirstLost, kLost };

// Of many errors the one to tell.
class RootCause {
 public:
  void offer(Kind kind, int rank, std::exception_ptr error) {
    std::lock_guard lock(mutex_);
    if (error_ != nullptr && std::pair(kind_, rank_) < std::pair(kind, rank))
      return;
    kind_ = kind;
    rank_ = rank;
    error_ = std::move(error);
  }

  void rethrow() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  Kind kind_ = Kind::kLost;
  int rank_ = 0;
  std::exception_ptr error_;
};

// The rank whose own words ended the world was the first to lose a peer.
Kind kind_of(const ThreadWorld& world, const PeerLost& error) {
  return world.abort_reason() == error.what() ? Kind::kFirstLost : Kind::kLost;
}

void call_rank(ThreadWorld& world, Communicator& communicator,
               const RankFunction& function, RootCause& cause) {
  const int rank = communicator.rank();
  const auto give_up = [&](Kind kind, std::string_view reason) {
    cause.offer(kind, rank, std::current_exception());
    world.abort(cat("rank ", rank, " failed: ", reason));
  };
  try {
    function(communicator);
  } catch (const PeerLost& error) {
    give_up(kind_of(world, error), error.what());
  } catch (const std::exception& error) {
    give_up(Kind::kOwn, error.what());
  } catch (...) {
    give_up(Kind::kOwn, "an exception of unknown type");
  }
}

}  // namespace

void run_ranks(int num_ranks, const RunOptions& options,
               const RankFunction& function) {
  auto world = std::make_shared<ThreadWorld>(num_ranks, options.world);
  std::deque<Communicator> communicators;
  for (int rank = 0; rank < num_ranks; ++rank)
    communicators.emplace_back(make_thread_transport(world, rank), world->ops(),
                               options.communicator, "world");
  RootCause cause;
  {
    std::vector<std::jthread> threads;
    for (Communicator& communicator : communicators)
      threads.emplace_back([&] {
        call_rank(*world, communicator, function, cause);
        communicator.leave();
      });
  }
  cause.rethrow();
}

void run_ranks(int num_ranks, const RankFunction& function) {
  run_ranks(num_ranks, RunOptions{}, function);
}

}  // namespace canzona
