// Decides who computes which matrix, and which matrices are exchanged together.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "canzona/plan/storage/storage_basis.h"
#include "canzona/plan/storage/storage_plan.h"

namespace canzona::plan {

// Decides who computes which matrix.

// Sets the owner of every matrix, one of its holders, so that the makespan is
// small, and the lines of shared element-wise tensors, so that all lines keep
// about the same number of elements.
void decide_owners(const StorageBasis& basis, StoragePlan& plan);

// Returns a lower bound on the makespan of any choice of owners; `upper` is a
// makespan that is achieved.
Ticks storage_bound(const StorageBasis& basis, const StoragePlan& plan,
                    Ticks upper);

// Decides which matrices of a class are exchanged together.
//
// Every owner's matrices are spread over the same few rounds. The first and the
// last round get half the work because nothing hides the first gather and the
// last scatter. On no rank do the messages of a round exceed capacity_bytes,
// unless every owner has at most one matrix in it: if owners took turns they
// would wait for each other. With strict_capacity these owners must be of one
// line, because a replica receives the matrices of all lines.

// Bytes of messages on one rank: pieces sent to owners, pieces received for
// transforms, updates sent, and updates received.
using RoundBytes = std::array<int64_t, 4>;
struct RankRoundBytes {
  int32_t rank = 0;
  RoundBytes bytes{};
};

// Counts the bytes that an item of a round adds to each rank. Counted on
// demand, since a table of all items would be large. One thread.
class RoundCounter {
 public:
  RoundCounter(const StorageBasis& basis, int32_t world)
      : basis_(basis), place_(static_cast<size_t>(world)) {}

  // Lists each rank once. Valid until the next call.
  const std::vector<RankRoundBytes>& bytes_of(size_t item);

 private:
  const StorageBasis& basis_;
  std::vector<size_t> place_;  // index in counted_, by rank
  std::vector<RankRoundBytes> counted_;
};

// Sets the rounds of all matrices and shared elements, and the number of rounds
// of each class. Requires owners.
void decide_rounds(const StorageBasis& basis, StoragePlan& plan);

}  // namespace canzona::plan
