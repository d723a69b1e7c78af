// Detects from the environment alone whether this process was started as a rank
// that meets the others over sockets.
//
//   if (std::optional<TcpLaunch> launch = find_tcp_launch())
//     TcpSession session({.meeting = launch->meeting, …});
//
// `canzona launch` sets CANZONA_RANK, CANZONA_NUM_RANKS, CANZONA_RENDEZVOUS and
// CANZONA_JOB_TOKEN, and so may any other launcher. torchrun sets RANK,
// WORLD_SIZE, MASTER_ADDR and MASTER_PORT; it listens on that port itself, so
// the next one is ours. srun sets the rank and the number of ranks; the caller
// provides the meeting point. All of them set a rank's number on its machine;
// other launchers do so by CANZONA_LOCAL_RANK. Any thread may call, as long as
// no thread changes the environment.
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
  int num_local = 0;      // on this machine; 0: unknown
  int local_rank = -1;    // on this machine; -1: unknown
  Endpoint meeting = {};  // no host: unknown
  std::string token = {};
};

// Throws UsageError naming a variable that is missing or not a number, or two
// launchers that contradict each other.
std::optional<TcpLaunch> find_tcp_launch();
std::optional<TcpLaunch> find_tcp_launch(const Variables& variables);

}  // namespace canzona
