#include "canzona/comm/tcp/tcp_session.h"

#include <numeric>

#include "canzona/base/text.h"
#include "canzona/comm/communicator.h"
#include "canzona/comm/tcp/tcp_transport.h"
#include "canzona/comm/tcp/tcp_world.h"

namespace canzona {

struct TcpSession::State {
  std::shared_ptr<TcpWorld> world;
  std::unique_ptr<Transport> everyone;
  std::unique_ptr<Communicator> end;  // where all ranks meet at the end
  int64_t num_worlds = 0;
};

TcpSession::TcpSession(const TcpOptions& options)
    : state_(std::make_unique<State>()) {
  state_->world = std::make_shared<TcpWorld>(options);
  std::vector<int> ranks(static_cast<size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  state_->everyone =
      std::make_unique<TcpTransport>(state_->world, std::move(ranks), 1);
  state_->end = std::make_unique<Communicator>(
      make_world(), cpu_wire_ops(), CommunicatorOptions{.segment_bytes = 1},
      "session");
}

TcpSession::~TcpSession() {
  if (state_->end == nullptr) return;
  state_->world->abort(
      cat("rank ", rank(), " ended its session before the others"));
}

int TcpSession::rank() const { return state_->world->rank(); }
int TcpSession::size() const { return state_->world->size(); }
const std::vector<std::string>& TcpSession::nodes() const {
  return state_->world->nodes();
}

std::unique_ptr<Transport> TcpSession::make_world(
    std::chrono::nanoseconds time) {
  std::vector<int> ranks(static_cast<size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return state_->everyone->subgroup(ranks, state_->num_worlds++, 0,
                                    deadline_after(time));
}

void TcpSession::abort(std::string_view reason) {
  state_->world->abort(reason);
}

void TcpSession::finish(std::chrono::nanoseconds time) {
  if (state_->end == nullptr) return;
  state_->end->barrier({.label = "end of the program", .deadline = time});
  state_->end.reset();
  state_->everyone.reset();
  state_->world->finish();
}

}  // namespace canzona
