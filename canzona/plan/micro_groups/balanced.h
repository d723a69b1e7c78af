// Ours: owners keep their load over all rounds (dealt here if the strategy has
// not chosen them); every owner's matrices are spread over the same few rounds,
// so that gather, transform and scatter of different rounds overlap. Nothing
// hides the first round's gather and the last one's scatter, so these two get
// half as much work as the others, as far as matrices allow. No owner exceeds
// the capacity in a round; a matrix above it gets a round of its own.
#pragma once

#include <utility>

#include "canzona/plan/strategy.h"

namespace canzona {

// Rounds wanted for overlap where an owner has that many matrices.
inline constexpr int32_t kPipelineRounds = 8;

// How full a round of `rounds` is with `more` work: smaller is emptier. The
// first and the last are full with half the work.
inline std::pair<int64_t, int64_t> round_fullness(size_t round, size_t rounds,
                                                  int64_t work, int64_t more) {
  const bool is_end = rounds > 2 && (round == 0 || round == rounds - 1);
  return {(is_end ? 2 : 1) * (work + more), work};
}

void assign_balanced_rounds(const Problem& p, std::span<const int32_t> matrices,
                            bool owners_known, Assignment& a);

}  // namespace canzona
