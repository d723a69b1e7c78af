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
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "canzona/plan/schedule/bucket_collectives.h"

namespace canzona {

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

// One exchange of strips that go one by one (schedule/routes.h), with
// what ranks do with them; seconds by rank.
struct StepStrips {
  std::vector<double> sum = {}, multiply = {};
  std::vector<StepMessage> gather = {}, scatter = {};
};

// The work of a round in a home.
struct StepRound {
  // Seconds of whole matrices, by rank. With teams, those of the second segment
  // follow, and so on.
  std::vector<double> transform = {};
  std::vector<StepMessage> gather = {}, scatter = {};
  std::vector<StepTeam> teams = {};
  // Only in rounds without teams; usually empty.
  std::vector<StepStrips> strips = {};
  std::vector<double> iterate = {};  // between the sums and products of strips
};

// Returns the stages of such rounds as the runtime executes them: in the order
// of exchange_order() (schedule/rank_entries.h) and transform_order(), with its
// slots.
std::vector<StepStage> step_stages(std::vector<StepRound> rounds);

struct HomeStepTimes {
  std::vector<double> rank_seconds;          // until a rank's last stage ends
  std::vector<std::vector<double>> applied;  // when a round is applied, by rank
};

HomeStepTimes step_times(const std::vector<StepStage>& stages,
                         int32_t num_ranks);

}  // namespace canzona
