// The figures a plan of given storage is judged by.
#pragma once

#include <vector>

#include "canzona/plan/placed/placed_basis.h"
#include "canzona/plan/placed/placed_plan.h"
#include "canzona/plan/schedule/wire_bytes.h"

namespace canzona {

// Bytes that every rank sends and receives in one step, by link class.
std::vector<WireBytes> placed_bytes(const PlacedBasis& basis,
                                    const PlacedPlan& plan);

PlacedSummary summarize_placed(const PlacedBasis& basis,
                               const PlacedPlan& plan);

}  // namespace canzona
