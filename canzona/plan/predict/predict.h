// Predicts what a plan costs each rank: memory, bytes on the wire and time.
//
//   std::vector<RankCost> ranks = predict(plan);
//
// Memory is what Canzona allocates. Bytes are counted per collective and link
// class: two ranks are linked `intra` if they share a node of ranks_per_node
// consecutive ranks. Times come from the cost basis and the links of the plan
// and are *predicted*.
#pragma once

#include <array>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/bucket_collectives.h"

namespace canzona {

struct RankMemory {
  Bytes parameters;  // the copy that forward and backward use
  Bytes gradients;
  Bytes master;  // fp32 weights, where parameters are bf16
  Bytes states;  // of the rule and of AdamW
  // Slots of the micro-group exchange and rooms of teams, alike on every rank.
  Bytes buffers;
  Bytes pools;  // of modules on their way (zero.h), alike on every rank
  // Staging of sums on their way (base/sum_staging.h), beside the total, which
  // plans are judged by.
  Bytes staging = {};
  Bytes total() const {
    return parameters + gradients + master + states + buffers + pools;
  }
  RankMemory& operator+=(const RankMemory& other);
};

enum class Collective {
  kReduceScatter,  // gradients over dp
  kAllReduce,      // gradients over dp, where a strategy repeats or broadcasts
  kGather,         // momentum or gradient shards to owners, over tp
  kScatter,        // updates back, over tp
  kAllGather,      // parameters over dp
  kBroadcast,      // weights in the step
  kTeamSums,       // Gram matrices of strips, between the ranks of a team
  kTeamFactors,    // what the head of a team hands to everybody in it
};
inline constexpr int kNumCollectives = 8;
std::string_view to_string(Collective collective);

struct RankCost {
  int64_t elements = 0;        // matrix-rule elements of its home, this plane
  int64_t computed = 0;        // elements of the matrices that it computes
  Ticks every_step;            // work at this rank as an owner
  std::vector<Ticks> refresh;  // per phase, beside every_step
  int32_t num_matrices = 0;
  RankMemory memory;
  std::array<WireBytes, kNumCollectives> wire{};
  double transform_seconds_mean = 0;   // own work, mean over a period
  double transform_seconds_worst = 0;  // own work, worst step
  // Passes over memory that the cost of a matrix leaves out: gradients
  // scaled and looked at, AdamW, slots of the exchange. Seconds only where the
  // cost basis has a rate.
  double element_wise_bytes = 0;
  double element_wise_seconds = 0;
  // All of it, with the exchange over tp, pipelined: ordinary step, mean,
  // worst.
  double step_seconds = 0;
  double step_seconds_mean = 0;
  double step_seconds_worst = 0;
  int64_t bytes_sent() const;
  // Work that the same rank does one after the other.
  RankCost& operator+=(const RankCost& other);
};

// One entry per rank of the world; replicas (zero.h) repeat each other but for
// the links they use.
std::vector<RankCost> predict(const Plan& plan);
std::vector<RankCost> predict(const PlanPart& part);
// All seconds are 0.
std::vector<RankCost> predict_without_times(const PlanPart& part);

// Every rank's share of each part, added up; those of a part by its own ranks.
std::vector<RankCost> sum_of_parts(const Plan& plan,
                                   std::vector<std::vector<RankCost>> of_parts);

// By module (schedule/modules.h): the share of an ordinary step, as long as the
// slowest rank's, after which all its matrices are updated everywhere. Updates
// of elements come first.
std::vector<double> applied_shares(const Plan& plan);

// Returns the bytes of one slot of the exchange, by stage: slots are alike on
// all its ranks.
std::vector<int64_t> exchange_slot_bytes(const PlanPart& part,
                                         const RuleFacts& rule);
// The same of the rooms in which teams exchange sums and factors.
std::vector<int64_t> team_room_bytes(const PlanPart& part);

// Sum over the steps of a period of the largest load, in ticks, or of the
// longest path of a team (makespan/bound.h) where that is longer.
Ticks makespan(const PlanPart& part, const std::vector<RankCost>& ranks);
Ticks makespan(const Plan& plan, const std::vector<RankCost>& ranks);

// Mean and worst step (largest load, in ticks) if refreshes were spread over
// `phases` instead, owners unchanged.
struct PhaseOutlook {
  int32_t phases = 1;
  double mean_step = 0;
  double worst_step = 0;
  double mean_seconds = 0;
  double worst_seconds = 0;
};
std::vector<PhaseOutlook> phase_outlook(const Plan& plan);

}  // namespace canzona
