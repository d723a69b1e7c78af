// Decides which GPU a process takes, and what NCCL has to know of its
// surroundings before it starts.
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

namespace canzona {

struct LocalPlace {
  int local_rank = 0;  // among the ranks of this machine
  int num_local = 0;   // 0: the launcher does not say
};

// The place of a rank's GPU among those that its process may use: that of its
// local rank. A process that may use one alone takes it: its launcher may have
// given every process another, which NcclSession compares. UsageError, with
// both numbers, if there are fewer GPUs than ranks, unless they share.
int choose_gpu(const LocalPlace& place, int num_gpus, bool share);

struct NcclSurroundings {
  std::string host;
  int rank = 0;
  bool share = false;  // ranks share GPUs
  int version = 0;     // of NCCL
};

// Variables of the environment to set, those that are set already left out.
// NCCL_LAUNCH_ORDER_IMPLICIT=1: NCCL keeps the order in which operations of
// several communicators were issued. CUDA_MODULE_LOADING=EAGER: a kernel that
// is loaded at its first launch would wait for one of NCCL that waits for it.
// NCCL refuses ranks that share a GPU unless
// they seem to be on different machines (each has an NCCL_HOSTID, and sockets
// of the loopback device), from 2.30 on unless they are allowed to.
std::vector<std::pair<std::string, std::string>> nccl_settings(
    const NcclSurroundings& surroundings, const Variables& variables);

}  // namespace canzona
