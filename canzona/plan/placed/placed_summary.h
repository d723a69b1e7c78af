// The figures a plan of given storage is judged by.
#pragma once

#include <vector>

#include "canzona/plan/placed/placed_basis.h"
#include "canzona/plan/placed/placed_plan.h"
#include "canzona/plan/schedule/wire_bytes.h"

namespace canzona {

// Bytes that a rank sends and receives in one step, by link class. A broadcast
// is counted as its root's messages to every other rank of the set.
struct PlacedBytes {
  WireBytes gather;
  WireBytes scatter;
  WireBytes broadcast;
  WireBytes total() const { return gather + scatter + broadcast; }
};
// By rank.
std::vector<PlacedBytes> placed_bytes(const PlacedBasis& basis,
                                      const PlacedPlan& plan);

PlacedSummary summarize_placed(const PlacedBasis& basis,
                               const PlacedPlan& plan);

}  // namespace canzona
