// NCCL with a single rank, for `canzona doctor`: whether the library, its
// network and the device work together at all.
//
//   const double seconds = nccl_alone_seconds(load_nccl(), lane, {});
//
// The thread of the lane calls.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "canzona/comm/lane.h"
#include "canzona/comm/nccl/nccl_api.h"

namespace canzona {

// Founds a communicator of one rank, adds a few numbers of the lane's memory
// and compares them; the median of some times. As NcclSession, throws NCCL's
// words if it fails, and PeerLost if something takes longer than `time`.
double nccl_alone_seconds(const NcclApi& nccl, Lane& lane,
                          std::chrono::nanoseconds time);

// The network that NCCL tells of in what it writes with NCCL_DEBUG=INFO:
// "Socket", "IB"; "" if it tells of none.
std::string nccl_network(std::string_view log);

}  // namespace canzona
