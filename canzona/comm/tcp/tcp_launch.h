// Tells whether this process was started as a rank that meets the others over
// sockets, from the environment alone.
//
//   if (std::optional<TcpLaunch> launch = find_tcp_launch())
//     TcpSession session({.meeting = launch->meeting, …});
//
// `canzona launch` sets CANZONA_RANK, CANZONA_NUM_RANKS, CANZONA_RENDEZVOUS and
// CANZONA_JOB_TOKEN, and so may anybody else. torchrun sets RANK, WORLD_SIZE,
// MASTER_ADDR and MASTER_PORT, at which it listens itself: the port after it is
// ours. srun tells rank and number of ranks; the meeting point is given. All
// tell a rank's number among those of its machine, anybody else by
// CANZONA_LOCAL_RANK.
// Any thread may call, as long as none changes the environment.
#pragma once

#include <optional>
#include <string>

#include "canzona/base/environment.h"
#include "canzona/comm/tcp/sockets.h"

namespace canzona {

struct TcpLaunch {
  std::string launcher;  // "canzona launch", "torchrun" or "srun"
  int rank = 0;
  int num_ranks = 1;
  int num_local = 0;      // of them, on this machine; 0: it does not say
  int local_rank = -1;    // among those; -1: it does not say
  Endpoint meeting = {};  // no host: it does not say
  std::string token = {};
};

// UsageError names a variable that is missing or no number, and two launchers
// that contradict each other.
std::optional<TcpLaunch> find_tcp_launch();
std::optional<TcpLaunch> find_tcp_launch(const Variables& variables);

}  // namespace canzona
