// Which matrices of a class are exchanged together.
//
// Every owner's matrices are spread over the same few rounds, the first and the
// last of which get half the work, because nothing hides the first gather and
// the last scatter. On no rank are the messages of a round more than
// capacity_bytes, unless every owner has at most one matrix in it: owners that
// take turns would wait for each other.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "canzona/plan/placed/placed_basis.h"
#include "canzona/plan/placed/placed_plan.h"

namespace canzona {

// Bytes of messages on one rank: pieces that it sends to be gathered, pieces
// that it receives to transform, updates that it sends and those it receives.
using RoundBytes = std::array<int64_t, 4>;
struct RankRoundBytes {
  int32_t rank = 0;
  RoundBytes bytes{};
};

// Returns the bytes that an item of a round puts on ranks, each rank once.
std::vector<RankRoundBytes> round_bytes(const PlacedBasis& basis, size_t item);

// Sets the rounds of all matrices and shared elements, and their number in each
// class, from the owners.
void decide_rounds(const PlacedBasis& basis, PlacedPlan& plan);

}  // namespace canzona
