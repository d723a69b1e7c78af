// Searches for teams inside one home: which of its matrices several ranks
// share, and which ranks.
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
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/makespan/bound.h"

namespace canzona {

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

}  // namespace canzona
