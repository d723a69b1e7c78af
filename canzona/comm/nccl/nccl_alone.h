// Runs NCCL with a single rank, for `canzona doctor`, to check that the
// library, its network and the device work together at all.
//
//   const double seconds = nccl_alone_seconds(load_nccl(), lane, {});
//
// Must be called by the lane's thread.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "canzona/comm/nccl/nccl_library.h"
#include "canzona/comm/transport.h"

namespace canzona {

// Creates a communicator of one rank, sums a few numbers in the lane's memory,
// checks them and returns the median time. Like NcclSession, throws with NCCL's
// text on failure, and PeerLost if a step takes longer than `time`.
double nccl_alone_seconds(const NcclApi& nccl, Lane& lane,
                          std::chrono::nanoseconds time);

// Returns the network that NCCL reports in its log under NCCL_DEBUG=INFO:
// "Socket", "IB"; "" if it reports none.
std::string nccl_network(std::string_view log);

}  // namespace canzona
