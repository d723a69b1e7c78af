// Ours: owners keep their load over all rounds (dealt here if the strategy has
// not chosen them); every owner's matrices are spread over the same few rounds,
// so that gather, transform and scatter of different rounds overlap. Nothing
// hides the first round's gather and the last one's scatter, so these two get
// half as much work as the others, as far as matrices allow. No owner exceeds
// the capacity in a round; a matrix above it gets a round of its own.
#pragma once

#include "canzona/plan/strategy.h"

namespace canzona {

// Rounds wanted for overlap where an owner has that many matrices.
inline constexpr int32_t kPipelineRounds = 8;

void assign_balanced_rounds(const Problem& p, std::span<const int32_t> matrices,
                            bool owners_known, Assignment& a);

}  // namespace canzona
