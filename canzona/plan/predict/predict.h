// Predicts what a plan costs each rank: memory, bytes on the wire and time.
//
//   std::vector<RankCost> ranks = predict(plan);
//
// Memory is what Canzona allocates. Bytes are counted per collective and link
// class: a link is `intra` if both ranks are on the same node of ranks_per_node
// consecutive ranks. Times follow from the plan's cost basis and links and are
// *predicted*.
#pragma once

#include <array>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/bucket_collectives.h"

namespace canzona {

struct RankMemory {
  Bytes parameters;  // the copy used by forward and backward
  Bytes gradients;
  Bytes master;  // fp32 weights, if parameters are bf16
  Bytes states;  // of the rule and of AdamW
  // Slots of the micro-group exchange and scratch of teams; the same on every
  // rank.
  Bytes buffers;
  Bytes pools;  // for modules in transit (zero.h); the same on every rank
  // Staging of sums in transit (base/sum_staging.h). Not part of the total by
  // which plans are judged.
  Bytes staging = {};
  Bytes total() const {
    return parameters + gradients + master + states + buffers + pools;
  }
  RankMemory& operator+=(const RankMemory& other);
};

enum class Collective {
  kReduceScatter,  // gradients over dp
  kAllReduce,      // gradients over dp, if a strategy repeats or broadcasts
  kGather,         // momentum or gradient shards to owners, over tp
  kScatter,        // updates back, over tp
  kAllGather,      // parameters over dp
  kBroadcast,      // weights in the step
  kTeamSums,       // Gram matrices of strips, between the ranks of a team
  kTeamFactors,    // pieces of the head's factor, sent to all members
};
inline constexpr int kNumCollectives = 8;
std::string_view to_string(Collective collective);

struct RankCost {
  int64_t elements = 0;        // matrix-rule elements of its home, in this
                               // plane
  int64_t computed = 0;        // elements of the matrices it computes
  Ticks every_step;            // its work as an owner
  std::vector<Ticks> refresh;  // per phase, on top of every_step
  int32_t num_matrices = 0;
  RankMemory memory;
  std::array<WireBytes, kNumCollectives> wire{};
  double transform_seconds_mean = 0;   // own work, mean over a period
  double transform_seconds_worst = 0;  // own work, worst step
  // Passes over memory that are not part of a matrix's cost: scaling and
  // checking of gradients, AdamW, slots of the exchange. Seconds are 0 unless
  // the cost basis has a rate.
  double element_wise_bytes = 0;
  double element_wise_seconds = 0;
  // The whole step, including the pipelined exchange over tp: an ordinary step,
  // the mean, and the worst.
  double step_seconds = 0;
  double step_seconds_mean = 0;
  double step_seconds_worst = 0;
  int64_t bytes_sent() const;
  // Adds work that the same rank does afterwards.
  RankCost& operator+=(const RankCost& other);
};

// Returns one entry per rank of the world. Replicas (zero.h) differ only in the
// links they use.
std::vector<RankCost> predict(const Plan& plan);
std::vector<RankCost> predict(const PlanPart& part);
// The same with all seconds 0.
std::vector<RankCost> predict_without_times(const PlanPart& part);

// Adds up every rank's costs over the parts; `of_parts` is indexed by the ranks
// of each part.
std::vector<RankCost> sum_of_parts(const Plan& plan,
                                   std::vector<std::vector<RankCost>> of_parts);

// Returns, by module (schedule/modules.h), the fraction of an ordinary step of
// the slowest rank after which all matrices of the module are updated
// everywhere. Element-wise updates come first.
std::vector<double> applied_shares(const Plan& plan);

// Returns the bytes of one slot of the exchange, by stage. Slots are the same
// on all ranks of a stage.
std::vector<int64_t> exchange_slot_bytes(const PlanPart& part,
                                         const RuleFacts& rule);
// The same for the memory in which teams exchange sums and factors.
std::vector<int64_t> team_room_bytes(const PlanPart& part);

// Sum over the steps of a period of the largest load, in ticks, or of the
// longest path of a team (makespan/bound.h) where that is longer.
Ticks makespan(const PlanPart& part, const std::vector<RankCost>& ranks);
Ticks makespan(const Plan& plan, const std::vector<RankCost>& ranks);

// The mean and worst step (largest load, in ticks) if refreshes were spread
// over `phases` with the same owners.
struct PhaseOutlook {
  int32_t phases = 1;
  double mean_step = 0;
  double worst_step = 0;
  double mean_seconds = 0;
  double worst_seconds = 0;
};
std::vector<PhaseOutlook> phase_outlook(const Plan& plan);

}  // namespace canzona
