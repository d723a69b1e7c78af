// Measures how long collectives take between ranks.
//
//   CollectivesRequest request{.run = ranks->runner(), .num_ranks = 4};
//   for (const CollectiveTime& row : measure_collectives(request).rows) …
//
// Results are checked before anything is timed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "canzona/comm/transport.h"
#include "canzona/measure/rank_runner.h"

namespace canzona::measure {

struct CollectivesRequest {
  RankRunner run;
  int num_ranks = 1;
  std::string device = "cpu";
  int64_t bytes = int64_t{64} << 20;  // of a whole fp32 buffer
  int rounds = 5;
  // Makes a lane of the device on a rank's thread; if empty, operations are
  // complete when they return.
  std::function<std::shared_ptr<Lane>()> make_lane = {};
  std::function<void(const std::string& what)> progress = {};  // called on rank
                                                               // 0
};

struct CollectiveTime {
  std::string operation;  // "reduce_scatter_v"
  std::string what;       // "fp32", "bf16 on the wire", "unequal", …
  int64_t sent = 0;       // bytes sent by the rank that sends most
  double seconds = 0;     // of the slowest rank, minimum over rounds
  double bytes_per_second() const {
    return seconds > 0 ? static_cast<double>(sent) / seconds : 0;
  }
};

struct Collectives {
  std::vector<CollectiveTime> rows;
  double copy_seconds = 0;  // for a copy of a whole buffer
};

// Throws UsageError if the buffer does not have something for every pair of
// ranks.
Collectives measure_collectives(const CollectivesRequest& request);

}  // namespace canzona::measure
