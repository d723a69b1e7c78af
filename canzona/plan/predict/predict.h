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
#include <cstdint>
#include <map>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/bucket_collectives.h"
#include "canzona/plan/search/bundles.h"
#include "canzona/rules/facts.h"

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

// The steps of predict(); each fills its fields of every rank's cost.

// The node of each rank of the grid, in one replica.
using Nodes = std::vector<int32_t>;

// Adds the cost of matrices to the ranks of their homes; each matrix is
// refreshed in its phase.
void add_loads(const PlanPart& part, const std::vector<int32_t>& phase,
               int32_t phases, std::vector<RankCost>& ranks);
void add_matrix_memory(const PlanPart& part, const RuleFacts& rule,
                       std::vector<RankCost>& ranks);
void add_exchange_bytes(const PlanPart& part, const RuleFacts& rule,
                        const Nodes& nodes, std::vector<RankCost>& ranks);
void add_step_times(const PlanPart& part, const RuleFacts& rule,
                    const Nodes& nodes, std::vector<RankCost>& ranks);
void add_element_wise(const PlanPart& part, const RuleFacts& rule,
                      std::vector<RankCost>& ranks);

// Add the cost of buckets to all ranks.
void add_bucket_memory(const PlanPart& part, std::vector<RankCost>& ranks);
void add_pools(const PlanPart& part, std::vector<RankCost>& ranks);

// Add, for all replicas and indexed by the ranks of the part, the bytes of
// bucket collectives, and the seconds of broadcasts and memory passes.
void add_bucket_bytes(const PlanPart& part, std::vector<RankCost>& world);
void add_unhidden_times(const PlanPart& part, std::vector<RankCost>& world);

// Returns the elements that home h keeps of a bucket in one TP plane, all
// slices together.
int64_t matrix_elements_at(const Bucket& bucket, int32_t h);

// Returns the longest matrix run of any home, to which padding extends all
// runs.
int64_t longest_run(const Bucket& bucket);

int64_t bytes_per_parameter(const PlanPart& part);

// Return the elements of all shards of a bucket's matrix-rule or AdamW tensors.
int64_t matrix_elements(const PlanPart& part, const Bucket& bucket);
int64_t adamw_elements(const PlanPart& part, const Bucket& bucket);

// Loads of a plan: what each rank computes, in ticks.

// Bytes of a rule's states for one matrix, by where they live.
struct StateBytes {
  int64_t with_shard = 0;  // of the whole matrix; split over tp if it is cut
  int64_t with_owner = 0;
};

// Asks the rule once per shape. The rule must outlive the table.
class StateBytesTable {
 public:
  explicit StateBytesTable(const RuleFacts& rule) : rule_(rule) {}

  const StateBytes& of(MatrixShape shape);

 private:
  const RuleFacts& rule_;
  std::map<MatrixShape, StateBytes> known_;
};

// Calls visit(stage, home of the stage) for every home that keeps a tensor's
// states. Updates that every home repeats (kEveryHome) are counted only at the
// first home of each ep coordinate; share_repeated() copies them to the others.
template <class Visit>
void each_home(const PlanPart& part, int32_t tensor, Visit visit) {
  const Buffer& buffer = part.buffer_of(tensor);
  const int32_t home = part.home[static_cast<size_t>(tensor)];
  if (home != kEveryHome) {
    visit(buffer.stage, part.stage_home(buffer, home));
    return;
  }
  for (int32_t e = 0; e < part.grid.ep; ++e) {
    if (buffer.ep < 0 || buffer.ep == e) {
      visit(buffer.stage, part.grid.home_of_expert(0, e));
    }
  }
}

// Calls visit(rank of the world) once for every rank of those homes that
// computes all or part of matrix `m`, in the order in which owners are first
// named.
template <class Visit>
void each_computing_rank(const PlanPart& part, size_t m, Visit visit) {
  const std::vector<int32_t> owners = distinct(part.owners[m]);
  each_home(part, part.matrices[m].tensor, [&](int32_t stage, int32_t home) {
    for (int32_t t = 0; owners.empty() && t < part.grid.tp; ++t) {
      visit(part.grid.rank(stage, home, t));
    }
    for (int32_t t : owners) visit(part.grid.rank(stage, home, t));
  });
}

// Returns the rank in the first home of the same ep coordinate, where the
// updates that `rank` repeats were counted.
int32_t counted_rank(const Mesh& mesh, int32_t rank);

// Steps of a period by kind: [ordinary, refresh of phase 0, …].
std::vector<int64_t> steps_of(int32_t period, int32_t phases);

// A matrix's load in each kind of step.
std::vector<int64_t> load_by_step(const MatrixCost& cost, int32_t phase,
                                  int32_t period, int32_t phases);

// Returns a lower bound on the makespan of any plan for these matrices and this
// mesh. `upper` is a makespan that is achieved.
Ticks makespan_bound(const PlanPart& part, Ticks upper);
Ticks makespan_bound(const Plan& plan, Ticks upper);

}  // namespace canzona
