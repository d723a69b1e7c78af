// Predicts how long the step of a home takes on each of its ranks, and makes
// the stages that this follows from.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "canzona/plan/cost/cost.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/bucket_collectives.h"

namespace canzona::plan {

// Predicts how long the step of a home takes on each rank.
//
//   std::vector<StepStage> stages = step_stages(rounds);   // of all its ranks
//   HomeStepTimes times = step_times(stages, num_ranks);
//   times.rank_seconds[rank]; times.applied[round][rank];
//
// The stages of a home form one list. In each stage a rank computes for some
// time, exchanges messages with others, or has nothing to do. A rank has the
// threads of the runtime: one computes, one gathers, one scatters, and a fourth
// moves the data that members of teams exchange. Each thread executes its own
// stages in list order, one at a time. A stage begins on a rank when its thread
// is free and the stages it waits for have ended there. Waits point back in the
// list.
//
// A message begins when both ends have reached its stage. It occupies a sending
// port of one rank and a receiving port of the other, and arrives one latency
// later. Each rank has one port of each direction inside its node and one to
// other nodes. A stage has ended on a rank when all its messages there have
// arrived.
//
// Ports serve messages in the order in which they would begin if links took no
// time. That order is fixed before link speeds are considered, so every time is
// a maximum of sums, and faster links never make a step longer. Pure; any
// thread.

struct StepMessage {
  int32_t from = 0, to = 0;    // ranks of the home
  bool near = true;            // inside a node
  double port_seconds = 0;     // for which it occupies a port at either end
  double latency_seconds = 0;  // until it has arrived
};

enum class StepThread { kCompute, kGather, kScatter, kTeams };
inline constexpr int kNumStepThreads = 4;

struct StepStage {
  EntryKind kind = EntryKind::kTransform;
  int32_t round = 0;
  StepThread thread = StepThread::kCompute;
  std::vector<double> seconds = {};  // of compute, by rank; empty: none
  std::vector<StepMessage> messages = {};
  std::vector<int32_t> waits = {};  // earlier stages
  // The ranks that take part; the others skip the stage. Empty: all ranks.
  std::vector<int32_t> ranks = {};
};

// A matrix that a team shares: the seconds of one segment, and the messages of
// a segment (norms: twice per step), by purpose from kTeamNorms on.
struct StepTeam {
  std::vector<int32_t> members = {};  // ranks of the home, the head first
  int32_t segments = 1;
  double sum = 0, multiply = 0;  // of a member
  double iterate = 0;            // of the head
  // The second member is a helper, with this to iterate and nothing else.
  bool has_helper = false;
  double help = 0;
  std::array<std::vector<StepMessage>, kNumTeamPurposes> exchanges = {};
};

// The work of a round in a home.
struct StepRound {
  // Seconds of whole matrices, by rank. With teams, those of the second segment
  // follow, and so on.
  std::vector<double> transform = {};
  std::vector<StepMessage> gather = {}, scatter = {};
  std::vector<StepTeam> teams = {};
};

// Returns the stages of such rounds as the runtime executes them: in the order
// of exchange_order() (schedule/entries.h) and transform_order(), with its
// slots.
std::vector<StepStage> step_stages(std::vector<StepRound> rounds);

struct HomeStepTimes {
  std::vector<double> rank_seconds;          // until a rank's last stage ends
  std::vector<std::vector<double>> applied;  // when a round is applied, by rank
};

HomeStepTimes step_times(const std::vector<StepStage>& stages,
                         int32_t num_ranks);

// The stages of one home: what its ranks gather, compute alone and in teams,
// and scatter, round by round.
//
//   HomeStep home(part, rule, costs, matrices, nodes);
//   home.times(phase).rank_seconds[rank];
//
// Built by one thread. Owners, rounds and nodes may differ from those of the
// part.

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
  };

  void add_round(std::span<const HomeMatrix> matrices);
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
  const MatrixBlocks& blocks_of(int32_t matrix);
  StepMessage message(int32_t from, int32_t to, int64_t bytes) const;
  double seconds_of(const RoundWork& work, size_t at, int32_t phase) const;

  const PlanPart& part_;
  const RuleFacts& rule_;
  TeamCosts& costs_;
  std::vector<int32_t> nodes_;
  int32_t num_ranks_;
  std::map<MatrixShape, MatrixBlocks> blocks_;
  std::vector<RoundWork> rounds_;
};

}  // namespace canzona::plan
