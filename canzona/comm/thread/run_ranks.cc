#include "canzona/comm/thread/run_ranks.h"

#include <deque>
#include <exception>
#include <thread>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

// Kinds of errors, closest to the cause first.
enum class Kind { kOwn, kFirstLost, kLost };

struct Failure {
  Kind kind = Kind::kLost;
  std::exception_ptr error;
};

// The rank whose message ended the world was the first to lose a peer.
Kind kind_of(const ThreadWorld& world, const PeerLost& error) {
  return world.abort_reason() == error.what() ? Kind::kFirstLost : Kind::kLost;
}

void call_rank(ThreadWorld& world, Communicator& communicator,
               const RankFunction& function, Failure& failure) {
  const int rank = communicator.rank();
  const auto give_up = [&](Kind kind, std::string_view reason) {
    failure = {kind, std::current_exception()};
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

// Called when all threads have ended, so that this thread releases the errors.
void rethrow_cause(const std::vector<Failure>& failures) {
  const Failure* cause = nullptr;
  for (const Failure& failure : failures) {
    if (failure.error == nullptr) continue;
    if (cause == nullptr || failure.kind < cause->kind) cause = &failure;
  }
  if (cause != nullptr) std::rethrow_exception(cause->error);
}

}  // namespace

void run_ranks(int num_ranks, const RunOptions& options,
               const RankFunction& function) {
  auto world = std::make_shared<ThreadWorld>(num_ranks, options.world);
  std::deque<Communicator> communicators;
  for (int rank = 0; rank < num_ranks; ++rank)
    communicators.emplace_back(make_thread_transport(world, rank), world->ops(),
                               options.communicator, "world");
  std::vector<Failure> failures(communicators.size());
  {
    std::vector<std::jthread> threads;
    for (Communicator& communicator : communicators)
      threads.emplace_back([&] {
        call_rank(*world, communicator, function,
                  failures[static_cast<size_t>(communicator.rank())]);
        communicator.leave();
      });
  }
  rethrow_cause(failures);
}

void run_ranks(int num_ranks, const RankFunction& function) {
  run_ranks(num_ranks, RunOptions{}, function);
}

}  // namespace canzona
