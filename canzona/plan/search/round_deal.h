// How full rounds are, and matrices of teams dealt to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace canzona {

// The number of rounds to aim for, if an owner has that many matrices.
inline constexpr int32_t kPipelineRounds = 8;

// Returns how full a round would be with `more` work; smaller is emptier. The
// first and last round count as full with half the work.
inline std::pair<int64_t, int64_t> round_fullness(size_t round, size_t rounds,
                                                  int64_t work, int64_t more) {
  const bool is_end = rounds > 2 && (round == 0 || round == rounds - 1);
  return {(is_end ? 2 : 1) * (work + more), work};
}

// Deals matrices into rounds in a home with teams.

// A matrix with the ranks that compute it: one owner, or a team with its head
// first.
struct RoundJob {
  std::span<const int32_t> ranks;
  int64_t at_head = 0;    // work of the first rank
  int64_t at_member = 0;  // work of each other rank
  int64_t bytes = 0;      // of its shard, on each rank
};

// Returns the round of every job, numbered without gaps. Jobs are dealt largest
// first, each to the round that is least full on the fullest of its ranks, and
// no rank exceeds `capacity` bytes in a round. There are at most `rounds`
// rounds unless the capacity requires more; a job above the capacity gets a
// round of its own.
std::vector<int32_t> deal_team_rounds(std::span<const RoundJob> jobs,
                                      int32_t num_ranks, int32_t rounds,
                                      int64_t capacity);

}  // namespace canzona
