// A quick estimate of the step of one home, for the search of teams: rounds of
// matrices that its ranks gather, transform and scatter, each as long as the
// slowest rank's. Plans are predicted rank by rank (step_times.h).
//
//   HomeRounds rounds(tp, phases);
//   rounds.add(matrix, owners, team, tp);
//   const double seconds = rounds.seconds(terms, phase);
//
// Made by one thread; pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/makespan/team_sizes.h"
#include "canzona/plan/plan.h"

namespace canzona {

// One matrix as its home sees it.
struct HomeMatrix {
  MatrixCost cost;
  int32_t phase = 0;
  int32_t round = 0;
  int64_t bytes = 0;   // of the whole matrix in fp32
  int64_t pieces = 1;  // even ones that ranks of the home store
};
HomeMatrix home_matrix(const SettledRequest& request, const Mesh& grid,
                       size_t matrix, int32_t round);

// What turns work and bytes of a home into seconds.
struct HomeTerms {
  double seconds_per_tick = 0;
  double bytes_per_second = 1;
  double latency_seconds = 0;
};
// `near`: all ranks of the home share a node.
HomeTerms home_terms(const CostBasis& basis, const Links& links, bool near);

class HomeRounds {
 public:
  HomeRounds(int32_t ranks, int32_t phases);

  // `owners` as in a plan: none means that every rank repeats the update.
  void add(const HomeMatrix& matrix, std::span<const int32_t> owners,
           const TeamSize& team);

  // Seconds of one step: gathers as far ahead as they get ‖ transform(k) ‖
  // scatter(k−1), each stage as slow as its slowest rank or team. `phase` < 0:
  // an ordinary step.
  double seconds(const HomeTerms& terms, int32_t phase) const;

 private:
  // Work and bytes of one round on one rank.
  struct Load {
    int64_t every_step = 0;
    int64_t gathered = 0;
    int64_t scattered = 0;
  };
  // Rounds of one rank; refresh work lies in [round · phases + phase].
  struct Rank {
    std::vector<Load> loads;
    std::vector<int64_t> refresh;
  };

  void add_share(int32_t t, const HomeMatrix& matrix, int64_t ticks,
                 bool repeated, int64_t members);
  int64_t refresh(const Rank& rank, size_t round, int32_t phase) const;

  size_t phases_;
  std::vector<Rank> ranks_;
  std::vector<int64_t> paths_;  // the longest of a team, by round
  size_t num_rounds_ = 0;
};

}  // namespace canzona
