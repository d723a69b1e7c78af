// NCCL before there are groups: which GPU a process takes, and which
// environment variables NCCL needs before it starts.
//
//   const int gpu = choose_gpu({.local_rank = 3, .num_local = 8}, 8, false);
//   for (const auto& [name, value] : nccl_settings({…}, process_variables()))
//     set_environment_variable(name, value);
//
// Any thread may call.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "canzona/base/environment.h"
#include "canzona/comm/nccl/nccl_library.h"

namespace canzona::comm {

struct LocalPlace {
  int local_rank = 0;  // among the ranks of this machine
  int num_local = 0;   // 0: the launcher does not say
};

// Returns the index of this rank's GPU among those visible to its process: its
// local rank. If only one GPU is visible, the process takes it, since the
// launcher may have given every process a different one; NcclSession checks
// that. Throws UsageError, with both numbers, if there are fewer GPUs than
// ranks and they may not be shared.
int choose_gpu(const LocalPlace& place, int num_gpus, bool share);

struct NcclSurroundings {
  std::string host;
  int rank = 0;
  bool share = false;  // ranks share GPUs
  int version = 0;     // NCCL's
};

// Returns the environment variables to set, without those that are set already.
// NCCL_LAUNCH_ORDER_IMPLICIT=1 makes NCCL keep the order in which operations of
// several communicators were issued. CUDA_MODULE_LOADING=EAGER avoids a
// deadlock: a kernel that is loaded at its first launch would wait for an NCCL
// kernel that waits for it. NCCL refuses ranks that share a GPU unless they
// seem to be on different machines (each with its own NCCL_HOSTID, over
// loopback sockets) or, from 2.30 on, sharing is allowed explicitly.
std::vector<std::pair<std::string, std::string>> nccl_settings(
    const NcclSurroundings& surroundings, const Variables& variables);

}  // namespace canzona::comm
