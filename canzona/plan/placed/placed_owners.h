// Decides who computes which matrix, and which matrices are exchanged together.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "canzona/plan/placed/placed_basis.h"
#include "canzona/plan/placed/placed_plan.h"

namespace canzona {

// Who computes which matrix.

// Sets the owner of every matrix, one of its holders, so that the makespan is
// small; and the lines of shared element-wise tensors, so that lines keep about
// as many elements.
void decide_owners(const PlacedBasis& basis, PlacedPlan& plan);

// Lower bound on the makespan of any owners; `upper` is one that is reached.
Ticks placed_bound(const PlacedBasis& basis, const PlacedPlan& plan,
                   Ticks upper);

// Which matrices of a class are exchanged together.
//
// Every owner's matrices are spread over the same few rounds, the first and the
// last of which get half the work, because nothing hides the first gather and
// the last scatter. On no rank are the messages of a round more than
// capacity_bytes, unless every owner has at most one matrix in it: owners that
// take turns would wait for each other. With strict_capacity these owners must
// be of one line: what several lines own, every replica receives, and that is
// as many times a matrix as there are lines.

// Bytes of messages on one rank: pieces that it sends to be gathered, pieces
// that it receives to transform, updates that it sends and those it receives.
using RoundBytes = std::array<int64_t, 4>;
struct RankRoundBytes {
  int32_t rank = 0;
  RoundBytes bytes{};
};

// Counts the bytes that items of rounds put on ranks. All of them at once would
// be many, so each is counted when it is asked for. One thread.
class RoundCounter {
 public:
  RoundCounter(const PlacedBasis& basis, int32_t world)
      : basis_(basis), place_(static_cast<size_t>(world)) {}

  // Each rank once; until the next call.
  const std::vector<RankRoundBytes>& bytes_of(size_t item);

 private:
  const PlacedBasis& basis_;
  std::vector<size_t> place_;  // of ranks, in counted_
  std::vector<RankRoundBytes> counted_;
};

// Sets the rounds of all matrices and shared elements, and their number in each
// class, from the owners.
void decide_rounds(const PlacedBasis& basis, PlacedPlan& plan);

}  // namespace canzona
