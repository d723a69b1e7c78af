// A Workload is what a plan is to train: tokens, rates, and how communication
// overlaps compute.
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
  // Measured by module on one rank as planned; if empty, derived from shapes.
  std::vector<PassSeconds> measured = {};
  int64_t num_micro_batches = 1;
  // The width of an activation between layers, for the sums over tp ranks; 0 if
  // `measured` includes these or they are not to be counted.
  int64_t hidden = 0;
  int64_t bytes_per_activation = 4;
  Overlap overlap = Overlap::kBackground;
  // The size of the segments in which sums travel.
  int64_t segment_bytes = 256 << 10;
  double copy_bytes_per_second = 0;  // per background thread; 0: free
  // How much threads that copy and compute slow each other down (processor.h),
  // 0 to 1.
  double slowdown = 0;
  Meetings meetings = {};
  // All levels of links, of which the plan's two classes are the first two; if
  // empty, there are no others.
  std::vector<LinkLevel> levels = {};
  // If true, direct sums and gathers of buckets use rings instead.
  bool rings = false;
  RankSpread spread = {};
};

}  // namespace canzona
