// The objective of a plan with refreshes, and its lower bound.
//
// An item's load has P dimensions, one per kind of step in a refresh period:
// [ordinary step, refresh step of phase 0, phase 1, …], or just one where
// nothing is refreshed. The objective is the sum over the period's steps of the
// largest load in each: Σ_p steps[p] · max_r load[r][p].
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace canzona {

inline constexpr int32_t kAnyZone = -1;

// Items that are alike in every respect that matters.
struct ItemClass {
  std::vector<int64_t> load;  // P dimensions
  int64_t count = 0;
  int64_t elements = 0;     // of the TP shard; decides bytes on the wire
  int64_t home_bytes = 0;   // master and shard-states, all ranks of the home
  int64_t owner_bytes = 0;  // states at the owner
  int32_t zone = kAnyZone;  // only ranks of this zone may own it
};

// Sets of ranks that may own items, each ascending.
using OwnerSets = std::vector<std::vector<int32_t>>;

// Returns a lower bound on the objective of any assignment.
int64_t objective_bound(const std::vector<ItemClass>& classes,
                        const std::vector<int64_t>& steps,
                        const std::vector<int32_t>& zones, int64_t upper);

// The same for items whose zones are numbers of sets of owners, which may
// overlap.
int64_t objective_bound(const std::vector<ItemClass>& classes,
                        const std::vector<int64_t>& steps, size_t num_ranks,
                        const OwnerSets& sets, int64_t upper);

}  // namespace canzona
