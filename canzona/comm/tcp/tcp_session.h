// Ranks as processes that communicate over sockets. They need no launcher and
// no library, only an address at which to meet.
//
//   TcpSession session({.meeting = parse_endpoint("node1:29500"),
//                       .rank = 2, .num_ranks = 4, .token = "my job"});
//   Communicator world(session.make_world(), cpu_wire_ops(), options, "world");
//   train(world);
//   session.finish();
//
// Rank 0 listens at the meeting point, which must be an address of its machine.
// The machine's own name means its network address even where /etc/hosts calls
// it loopback, unless all ranks are known to be there.
// The token keeps apart jobs that were given the same meeting point by mistake;
// it is not a secret and nothing is encrypted, so use it only on a trusted
// network. finish() waits for all ranks; call it after the last operation. A
// session that is destroyed without it, because of an error, tells the others.
// A process that dies without a message is noticed at once; one that is stopped
// is noticed when a deadline expires. Every rank then gets PeerLost naming it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/environment.h"
#include "canzona/comm/tcp/sockets.h"
#include "canzona/comm/transport.h"

namespace canzona {

// Detects from the environment alone whether this process was started as a rank
// that meets the others over sockets.
//
//   if (std::optional<TcpLaunch> launch = find_tcp_launch())
//     TcpSession session({.meeting = launch->meeting, …});
//
// A script sets CANZONA_RANK, CANZONA_NUM_RANKS, CANZONA_RENDEZVOUS and, if it
// likes, CANZONA_JOB_TOKEN, CANZONA_NUM_LOCAL and CANZONA_LOCAL_RANK. torchrun
// sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; it listens on that port
// itself, so the next one is ours. srun sets the rank and the number of ranks;
// the caller provides the meeting point. Any thread may call, as long as no
// thread changes the environment.

struct TcpLaunch {
  std::string launcher;  // "torchrun", "srun" or what set CANZONA_RANK
  int rank = 0;
  int num_ranks = 1;
  int num_local = 0;      // on this machine; 0: unknown
  int local_rank = -1;    // on this machine; -1: unknown
  Endpoint meeting = {};  // no host: unknown
  std::string token = {};
};

// Throws UsageError naming a variable that is missing or not a number, or two
// launchers that contradict each other.
std::optional<TcpLaunch> find_tcp_launch();
std::optional<TcpLaunch> find_tcp_launch(const Variables& variables);

class Gate;

struct TcpOptions {
  Endpoint meeting = {};
  int rank = 0;
  int num_ranks = 1;
  int num_local = 0;  // ranks on this machine; 0: unknown
  std::string token = {};
  std::chrono::nanoseconds time = std::chrono::minutes(1);  // to come together
  // Rank 0 may pass a socket that already listens at the meeting point.
  std::shared_ptr<Socket> listener = {};
  // For tests: every collective of this process passes through the gate first.
  Gate* gate = nullptr;
};

class TcpSession {
 public:
  // Throws UsageError if rank 0 cannot listen there, or on meeting another job,
  // a second rank of this number or another number of ranks; throws PeerLost,
  // naming the ranks that do not come in time.
  explicit TcpSession(const TcpOptions& options);
  ~TcpSession();
  TcpSession(const TcpSession&) = delete;
  TcpSession& operator=(const TcpSession&) = delete;

  int rank() const;
  int size() const;
  // The host names, by rank.
  const std::vector<std::string>& nodes() const;

  // Makes a group of all ranks with messages of its own. All ranks must call
  // it. Destroy transports before the session.
  std::unique_ptr<Transport> make_world(
      std::chrono::nanoseconds time = std::chrono::minutes(1));

  // Ends all operations of all ranks with PeerLost and this reason.
  void abort(std::string_view reason);

  // Ends the session in an orderly way. Throws PeerLost, naming the ranks that
  // do not come in time.
  void finish(std::chrono::nanoseconds time = std::chrono::minutes(1));

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace canzona
