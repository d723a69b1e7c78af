// Teams: ranks of a home share matrices if that is predicted to shorten the
// step (docs/algorithms.md). Which matrices are shared by which ranks is
// searched for inside one home; they are then dealt to rounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "canzona/plan/layout/problem.h"
#include "canzona/plan/makespan/bound.h"

namespace canzona::plan {

// Teams must shorten the step to at most this fraction, and are not tried if
// whole owners are this close to the bound.
inline constexpr double kWorthTeams = 0.97;

// Returns why a request cannot have teams whatever --teams says, e.g. "homes of
// one rank"; empty if it can. `request` needs its parts, but no decisions.
std::string why_no_teams(const Plan& request, const RuleFacts& rule);

// Throws UsageError if --teams names a size that the request cannot have.
void check_teams(const Plan& request, const RuleFacts& rule);

// Changes owners and rounds in homes where teams pay; the homes of tensors
// stay.
void share_matrices(const PlanPart& part, const Problem& p, Assignment& a);

// The search inside one home.
//
//   TeamHome home{{sizes of each matrix}, {node of each rank}};
//   for (const TeamDeal& deal : deal_teams(home)) …
//
// For a target T that rises from the bound, every matrix takes the smallest
// team whose path fits T. Whole matrices, heads and members are dealt longest
// first and improved by moves and swaps; then matrices on the busiest rank take
// larger teams while that helps, and teams shrink where that costs nothing.
// Uses integers only and breaks ties by number, so the result is the same on
// any machine. Any thread.

struct TeamHome {
  std::vector<TeamSizes> matrices;
  // The node of each rank, counted from 0; a team must be on one node.
  std::vector<int32_t> nodes;
};

struct TeamDeal {
  std::vector<std::vector<int32_t>> owners;  // per matrix, the head first
  int64_t makespan = 0;  // the largest work of a rank, or longest path
  int32_t num_teams = 0;
  int32_t team_ranks = 0;  // of all teams together
};

int64_t team_bound(const TeamHome& home);

// Returns one deal for each target that leads to different teams, until targets
// exceed the best makespan. No size may exceed the ranks of the largest node.
std::vector<TeamDeal> deal_teams(const TeamHome& home);

// How full rounds are, and matrices dealt to them in a home with teams.

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

}  // namespace canzona::plan
