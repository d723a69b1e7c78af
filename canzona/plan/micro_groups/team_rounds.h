// Rounds of a home in which teams share matrices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace canzona {

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
