// Measures how long collectives take between ranks: each in the one order of
// sums, and by the library behind the transport where it has sums of its own.
//
//   CollectivesRequest request{.run = ranks->runner(), .num_ranks = 4};
//   for (const CollectiveTime& row : measure_collectives(request).rows) …
//
// Pieces are checked against what they must be before anything is timed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "canzona/comm/lane.h"
#include "canzona/measure/rank_runner.h"

namespace canzona {

struct CollectivesRequest {
  RankRunner run;
  int num_ranks = 1;
  std::string device = "cpu";
  int64_t bytes = int64_t{64} << 20;  // of a whole buffer of fp32
  int rounds = 5;
  bool fast = false;  // the groups have fast_reduce
  // A lane of the device, on a thread of the rank; empty: operations have ended
  // when they return.
  std::function<std::shared_ptr<Lane>()> make_lane = {};
  std::function<void(const std::string& what)> progress = {};  // by rank 0
};

struct CollectiveTime {
  std::string operation;  // "reduce_scatter_v"
  std::string what;       // "fp32", "bf16 on the wire", "unequal", …
  bool exact = true;      // sums of fp32: in the order of the tree
  int64_t sent = 0;       // bytes, by the rank that sends most
  double seconds = 0;     // of the slowest rank, the least of all rounds
  double bytes_per_second() const {
    return seconds > 0 ? static_cast<double>(sent) / seconds : 0;
  }
};

struct Collectives {
  std::vector<CollectiveTime> rows;
  double copy_seconds = 0;  // of as many bytes as a whole buffer has
};

Collectives measure_collectives(const CollectivesRequest& request);

// The ratio of exact sums to those of the library, by counts; 0 if one is
// missing.
double exact_to_fast(const Collectives& measured, const std::string& operation,
                     const std::string& what);

}  // namespace canzona
