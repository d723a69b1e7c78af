// A Workload is what a plan is asked to train: tokens, rates, and how far
// communication runs beside compute. Plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/zero.h"
#include "canzona/sim/compute_seconds.h"
#include "canzona/sim/link_levels.h"
#include "canzona/sim/rank_spread.h"
#include "canzona/sim/transfer.h"

namespace canzona {

struct Workload {
  // The load of one micro-batch on one data-parallel rank; the plan knows how
  // many ranks share a product.
  ComputeLoad compute = {};
  // Measured on one rank as it is planned, by module; empty: from the shapes.
  std::vector<PassSeconds> measured = {};
  int64_t num_micro_batches = 1;
  // The width of an activation between layers, for the sums over tp ranks; 0:
  // they are in `measured` already, or not to be counted.
  int64_t hidden = 0;
  int64_t bytes_per_activation = 4;
  Overlap overlap = Overlap::kBackground;
  // Pieces in which sums travel.
  int64_t segment_bytes = 256 << 10;
  double copy_bytes_per_second = 0;  // of a background thread; 0: free
  // The slowdown of threads that copy and compute by each other (processor.h),
  // 0 to 1.
  double slowdown = 0;
  Meetings meetings = {};
  // Links beyond the two classes of the plan, which are the first two of these;
  // none: there are no others.
  std::vector<LinkLevel> levels = {};
  // Sums and gathers of buckets that are direct go round in rings instead.
  bool rings = false;
  RankSpread spread = {};
};

}  // namespace canzona
