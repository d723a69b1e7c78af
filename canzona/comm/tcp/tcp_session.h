// Ranks as processes that talk over sockets: no launcher and no library is
// needed beyond a place to meet.
//
//   TcpSession session({.meeting = parse_endpoint("node1:29500"),
//                       .rank = 2, .num_ranks = 4, .token = "my job"});
//   Communicator world(session.make_world(), cpu_wire_ops(), options, "world");
//   train(world);
//   session.finish();
//
// Rank 0 listens at the meeting point, which must be an address of its machine.
// The token keeps jobs apart that were given the same one by mistake; it is
// no secret that keeps anybody out, and nothing is encrypted: use it inside a
// network that you trust. finish() waits for all ranks; it comes after the last
// operation. A session that ends without it, because of an error, tells the
// others so. A process that ends without a word is noticed at once, one that is
// stopped when a deadline has passed; then every rank gets PeerLost that names
// it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/comm/tcp/sockets.h"
#include "canzona/comm/transport.h"

namespace canzona {

class Gate;

struct TcpOptions {
  Endpoint meeting = {};
  int rank = 0;
  int num_ranks = 1;
  std::string token = {};
  std::chrono::nanoseconds time = std::chrono::minutes(1);  // to come together
  // Rank 0 may have a socket that listens at the meeting point already.
  std::shared_ptr<Socket> listener = {};
  // For tests: every collective of this process passes here first.
  Gate* gate = nullptr;
};

class TcpSession {
 public:
  // UsageError if rank 0 cannot listen there, and if another job, a second rank
  // of this number or another number of ranks is met; PeerLost, naming them, if
  // ranks do not come in time.
  explicit TcpSession(const TcpOptions& options);
  ~TcpSession();
  TcpSession(const TcpSession&) = delete;
  TcpSession& operator=(const TcpSession&) = delete;

  int rank() const;
  int size() const;
  // The names of the machines, by rank.
  const std::vector<std::string>& nodes() const;

  // A group of all ranks with messages of its own. All ranks call it.
  // Transports end before the session.
  std::unique_ptr<Transport> make_world(
      std::chrono::nanoseconds time = std::chrono::minutes(1));

  // Ends all operations of all ranks with PeerLost that tells the reason.
  void abort(std::string_view reason);

  // The orderly end. PeerLost, naming them, if ranks do not come in time.
  void finish(std::chrono::nanoseconds time = std::chrono::minutes(1));

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace canzona
