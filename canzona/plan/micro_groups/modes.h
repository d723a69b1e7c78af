// The micro-group modes: how the matrices of a home are put into rounds.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "canzona/plan/strategy.h"

namespace canzona {

// Each matrix a round of its own, owners round-robin over tp: in plan order
// (`none`), or largest first (`sorted`).

void assign_rounds_in_order(const Problem& p, std::span<const int32_t> matrices,
                            bool owners_known, Assignment& a);
void assign_rounds_sorted(const Problem& p, std::span<const int32_t> matrices,
                          bool owners_known, Assignment& a);

// The published greedy: matrices largest first into the open micro-group as
// long as longest-first dealing keeps every owner within the capacity; else the
// group is closed ("rollback") and a new one begins. Loads start at zero in
// each group.

// UsageError names a matrix that alone exceeds the capacity.
void assign_capacity(const Problem& p, std::span<const int32_t> matrices,
                     bool owners_known, Assignment& a);

// Ours: owners keep their load over all rounds (dealt here if the strategy has
// not chosen them); every owner's matrices are spread over the same few rounds,
// so that gather, transform and scatter of different rounds overlap. Nothing
// hides the first round's gather and the last one's scatter, so these two get
// half as much work as the others, as far as matrices allow. No owner exceeds
// the capacity in a round; a matrix above it gets a round of its own.

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

// Rounds of a home in which teams share matrices.

// A matrix with the ranks that compute it: one owner, or a team, the head
// first.
struct RoundJob {
  std::span<const int32_t> ranks;
  int64_t at_head = 0;    // work of the first
  int64_t at_member = 0;  // and of each other
  int64_t bytes = 0;      // of its shard on every one of them
};

// The round of every job, numbered without gaps: largest first to the round
// that is least full on the fullest of its ranks, none above `capacity` bytes
// on a rank. At most `rounds` of them, unless the capacity wants more; a job
// above the capacity has a round of its own.
std::vector<int32_t> deal_team_rounds(std::span<const RoundJob> jobs,
                                      int32_t num_ranks, int32_t rounds,
                                      int64_t capacity);

}  // namespace canzona
