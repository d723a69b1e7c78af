// How long the step of a home takes, rank by rank, without a clock.
//
//   std::vector<StepStage> stages = step_stages(rounds);   // of all its ranks
//   HomeStepTimes times = step_times(stages, num_ranks);
//   times.rank_seconds[rank]; times.applied[round][rank];
//
// The stages of a home stand in one order. Each rank has its part in every
// stage: it computes for some time, or exchanges messages with others, or has
// nothing to do. A rank's threads are those of the runtime: one computes, one
// gathers, one scatters, each carries out its own stages in the order of the
// list, one at a time; a fourth one moves what the members of teams exchange. A
// stage begins on a rank when its thread is free and what it waits for has
// ended there. Waits point back in the list.
//
// A message begins when both ends have come to its stage. It holds a sending
// port of the one and a receiving port of the other, each rank has one of both
// inside its node and one of both to other nodes, and arrives a latency later.
// A stage has ended on a rank when all its messages there have arrived.
//
// Ports serve messages in the order in which they would begin if links took no
// time. That order is fixed before any link is looked at, so that every time is
// a maximum of sums: faster links never make a step longer. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "canzona/plan/schedule/bucket_collectives.h"

namespace canzona {

struct StepMessage {
  int32_t from = 0, to = 0;    // ranks of the home
  bool near = true;            // inside a node
  double port_seconds = 0;     // that it holds a port for, at either end
  double latency_seconds = 0;  // until it has arrived
};

enum class StepThread { kCompute, kGather, kScatter, kTeams };
inline constexpr int kNumStepThreads = 4;

struct StepStage {
  EntryKind kind = EntryKind::kTransform;
  int32_t round = 0;
  StepThread thread = StepThread::kCompute;
  std::vector<double> seconds = {};  // of compute, by rank; none: no time
  std::vector<StepMessage> messages = {};
  std::vector<int32_t> waits = {};  // earlier stages
  // Those that have a part in it; the others pass it by. Empty: all ranks.
  std::vector<int32_t> ranks = {};
};

// A matrix that a team shares: the seconds of one segment, and what its members
// exchange in a segment, norms twice in a step, by purpose from kTeamNorms on.
struct StepTeam {
  std::vector<int32_t> members = {};  // ranks of the home, the head first
  int32_t segments = 1;
  double sum = 0, multiply = 0;  // of a member
  double iterate = 0;            // of the head
  std::array<std::vector<StepMessage>, kNumTeamPurposes> exchanges = {};
};

// One exchange of strips that go one by one (schedule/routes.h), with
// what ranks do with them; seconds by rank.
struct StepStrips {
  std::vector<double> sum = {}, multiply = {};
  std::vector<StepMessage> gather = {}, scatter = {};
};

// What a round asks of a home.
struct StepRound {
  // Seconds of whole matrices, by rank; where there are teams, those of the
  // second segment follow, and so on.
  std::vector<double> transform = {};
  std::vector<StepMessage> gather = {}, scatter = {};
  std::vector<StepTeam> teams = {};
  // Besides, in rounds without teams; mostly none.
  std::vector<StepStrips> strips = {};
  std::vector<double> iterate = {};  // between their sums and products
};

// The stages of such rounds as the runtime has them: in the order of
// exchange_order() (schedule/rank_entries.h) and transform_order(), with its
// slots.
std::vector<StepStage> step_stages(std::vector<StepRound> rounds);

struct HomeStepTimes {
  std::vector<double> rank_seconds;          // until a rank's last stage ends
  std::vector<std::vector<double>> applied;  // when a round is, by rank
};

HomeStepTimes step_times(const std::vector<StepStage>& stages,
                         int32_t num_ranks);

}  // namespace canzona
