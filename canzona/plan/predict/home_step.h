// Predicts the step of one home, rank by rank (step_times.h): what its ranks
// gather, compute alone and in teams, and scatter, round by round or strip by
// strip.
//
//   HomeStep home(part, rule, costs, matrices, nodes);
//   home.times(phase).rank_seconds[rank];
//
// Built by one thread. Owners, rounds and nodes may differ from those of the
// part.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "canzona/plan/cost/cost.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/predict/step_times.h"
#include "canzona/plan/schedule/routes.h"

namespace canzona {

// One matrix of a home.
struct HomeMatrix {
  int32_t matrix = 0;  // number in the part
  int32_t round = 0;
  // As in a plan: an empty list means that every rank repeats the update.
  std::span<const int32_t> owners = {};
};

class HomeStep {
 public:
  // Matrices are sorted by round, then by number. `nodes` has the node of each
  // rank of the home. Everything but the spans must outlive the step.
  HomeStep(const PlanPart& part, const RuleFacts& rule, TeamCosts& costs,
           std::span<const HomeMatrix> matrices,
           std::span<const int32_t> nodes);

  // A negative `phase` means an ordinary step.
  std::vector<StepStage> stages(int32_t phase) const;
  HomeStepTimes times(int32_t phase) const {
    return step_times(stages(phase), num_ranks_);
  }

 private:
  class PairBytes;
  class MovedElements;

  // A refresh adds this to the step in which the team's matrix has it.
  struct TeamRefresh {
    int32_t phase = 0;
    double multiply = 0;  // seconds of a member
    double iterate = 0;   // seconds of the head
    double help = 0;      // seconds of a helper
    bool has_helper = false;
    bool factors_at_refresh = false;  // in no other step
  };

  // Ticks are at [segment · ranks + rank], those of refreshes at [(segment ·
  // ranks + rank) · phases + phase].
  struct RoundWork {
    std::vector<int64_t> every_step, refresh;
    std::vector<StepMessage> gather, scatter;
    std::vector<StepTeam> teams;
    std::vector<TeamRefresh> team_refreshes;  // one per team
    // Matrices exchanged strip by strip: messages by exchange, ticks by rank.
    struct Strips {
      std::vector<int64_t> sum, multiply;
      std::vector<StepMessage> gather, scatter;
    };
    std::vector<Strips> strips;
    std::vector<int64_t> iterate;
  };

  void add_round(std::span<const HomeMatrix> matrices, int32_t num_rounds);
  // Returns which matrices of a round are exchanged strip by strip.
  StripExchange strips_of(std::span<const HomeMatrix> matrices,
                          int32_t num_rounds);
  void add_strips(std::span<const HomeMatrix> matrices,
                  const StripExchange& strips, RoundWork& work);
  void add_strip(const HomeMatrix& of, int32_t strips, int32_t strip,
                 MovedElements& moved) const;
  void add_whole(const HomeMatrix& of, MovedElements& moved) const;
  void add_blocks(const HomeMatrix& of, MovedElements& moved);
  StepTeam add_team(const HomeMatrix& of, MovedElements& moved);
  TeamRefresh refresh_of_team(const HomeMatrix& of);
  static StepTeam team_in_step(const RoundWork& work, size_t team,
                               int32_t phase);
  void add_exchanges(const StripFacts& facts, StepTeam& team);
  // Work that a rank does alone: whole matrices and blocks, spread over the
  // segments of teams.
  struct OwnWork {
    int32_t rank = 0;
    int32_t matrix = 0;
    MatrixCost cost;
  };
  std::vector<OwnWork> own_work(std::span<const HomeMatrix> matrices);
  void add_work(std::span<const HomeMatrix> matrices, RoundWork& work);
  bool is_in_blocks(const HomeMatrix& of) {
    return of.owners.size() > 1 && blocks_of(of.matrix).fall_apart();
  }
  bool is_team(const HomeMatrix& of) {
    return of.owners.size() > 1 && !is_in_blocks(of);
  }
  const MatrixBlocks& blocks_of(int32_t matrix);
  StepMessage message(int32_t from, int32_t to, int64_t bytes) const;
  double seconds_of(const RoundWork& work, size_t at, int32_t phase) const;
  std::vector<double> seconds_of(std::span<const int64_t> ticks) const;

  const PlanPart& part_;
  const RuleFacts& rule_;
  TeamCosts& costs_;
  std::vector<int32_t> nodes_;
  int32_t num_ranks_;
  std::map<MatrixShape, MatrixBlocks> blocks_;
  std::vector<RoundWork> rounds_;
};

}  // namespace canzona
