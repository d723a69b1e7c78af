// The plan: the immutable answer to "who computes which matrix, what moves
// when, and what does each rank store".
//
//   Plan plan = make_plan({model, mesh, *rule, options});   // make_plan.h
//   for (const std::string& v : validate(plan)) …           // validate.h
//   std::string text = plan_to_json(plan);                  // plan_json.h
//
// Stored are the decisions only; routes, loads, bytes and memory are derived on
// demand (routes.h, predict.h, summary.h), so that a plan stays small. A plan
// is never changed after make_plan; any number of threads may read it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "canzona/base/units.h"
#include "canzona/plan/mesh.h"
#include "canzona/plan/options.h"
#include "canzona/rules/facts.h"
#include "canzona/shapes/tensor.h"

namespace canzona {

// How gradients and parameters travel between the data-parallel ranks of a
// bucket.
enum class Traffic {
  kReduceScatter,  // reduce-scatter in backward, all-gather in forward
  kPadded,         // the same, every rank's run padded to the longest
  kBroadcast,      // all-reduce in backward, weights broadcast in the step
  kAllReduce,      // all-reduce; every rank repeats every update
};

// True if each home receives only the sums of what it keeps.
constexpr bool is_scattered(Traffic traffic) {
  return traffic == Traffic::kReduceScatter || traffic == Traffic::kPadded;
}

// Tensors that share their data-parallel ranks: the dense ones of a stage, or
// the experts of one ep coordinate.
struct Buffer {
  int32_t stage = 0;
  int32_t ep = -1;  // -1: dense (or ep = 1)
  int32_t num_homes = 1;
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

// A list of tensors that are reduced together, the same in every TP plane. It
// has two regions: matrix-rule tensors, then AdamW tensors. Home h keeps
// elements [cuts[h], cuts[h+1]) of the first and [adamw_cuts[h],
// adamw_cuts[h+1]) of the second. If the cuts are empty, every home keeps
// everything (Traffic::kAllReduce), or, with Traffic::kBroadcast, the matrices
// that it owns, wherever they lie.
struct Bucket {
  int32_t buffer = 0;
  std::vector<int32_t> tensors;  // layout order
  int32_t num_matrix_tensors = 0;
  std::vector<int64_t> cuts;
  std::vector<int64_t> adamw_cuts;
  friend bool operator==(const Bucket&, const Bucket&) = default;
};

inline MatrixShape shape_of(const Matrix& matrix) {
  return {matrix.rows, matrix.cols, matrix.column_heads};
}

// Cost of one matrix in ticks (see CostBasis).
struct MatrixCost {
  Ticks every_step;
  Ticks refresh;
  friend bool operator==(const MatrixCost&, const MatrixCost&) = default;
};

// The value of a tick of cost. Without a measured table a tick is one flop,
// and times use a nominal rate.
struct CostBasis {
  std::string source = "nominal";  // or the table's device
  double seconds_per_tick = 0;
  // The rate of memory-bound passes; 0 if it was not measured, in which case
  // their time is not counted.
  double element_wise_bytes_per_second = 0;
  friend bool operator==(const CostBasis&, const CostBasis&) = default;
};

inline constexpr int32_t kEveryHome = -1;

// The owners of all matrices. Usually a matrix has one owner, a tp rank of its
// home. A team has several; a matrix that consists of independent blocks
// (RuleFacts::block) may have one for each block; an empty list means that
// every tp rank of the home repeats the update.
class OwnerLists {
 public:
  void push_back(std::span<const int32_t> ranks);
  void push_back(int32_t rank) { push_back(std::span(&rank, 1)); }
  std::span<const int32_t> operator[](size_t matrix) const {
    return std::span(ranks_).subspan(begin_[matrix],
                                     begin_[matrix + 1] - begin_[matrix]);
  }
  size_t size() const { return begin_.size() - 1; }
  friend bool operator==(const OwnerLists&, const OwnerLists&) = default;

 private:
  std::vector<uint32_t> begin_{0};
  std::vector<int32_t> ranks_;
};

// Returns the ranks of a list of owners without repetitions, in order of first
// appearance.
std::vector<int32_t> distinct(std::span<const int32_t> owners);

// The figures by which the owners of plans are compared.
struct LoadSummary {
  Ticks makespan;   // over a period: sum of the largest load of each step
  Ticks bound;      // no plan with a single owner per matrix can be below this
  double mean = 0;  // total load of a period / ranks
  int32_t idle_ranks = 0;
  Bytes bytes_per_rank_max;  // sent in one step
  friend bool operator==(const LoadSummary&, const LoadSummary&) = default;
};

// The figures by which plans are compared, stored in plan.json.
struct PlanSummary : LoadSummary {
  Ticks team_bound = {};  // as `bound`, for plans with teams; 0 if off
  Bytes memory_per_rank_max;
  double memory_per_rank_mean = 0;
  double step_seconds_mean = 0;   // predicted, slowest rank, mean over a period
  double step_seconds_worst = 0;  // predicted, slowest rank, worst step
  friend bool operator==(const PlanSummary&, const PlanSummary&) = default;
};

// A request with every default filled in, cut into matrices and weighed. It
// covers a whole model, or the part of it that is planned on one grid.
struct SettledRequest {
  Model model;
  Mesh mesh;
  std::string rule;
  RuleOptions rule_options;
  PlanOptions options;
  CostBasis cost_basis;
  Traffic traffic = Traffic::kReduceScatter;
  std::vector<Matrix> matrices;
  std::vector<MatrixCost> costs;  // per matrix

  // Derived when the plan is made or read, not stored.
  std::vector<int32_t> first_matrix;  // per tensor, and one past the end
  std::vector<int32_t> phase;         // per matrix
  int32_t period = 1;
  int32_t phases = 1;
};

// Says which pieces of a part's matrices its ranks store if their storage is
// given, and takes the place of mesh, cuts and slices.
class GivenPieces {
 public:
  virtual ~GivenPieces() = default;
  // Returns the rank in the whole plan of a rank of the part.
  virtual int32_t rank_in_whole(int32_t rank) const = 0;
  // Returns what plane `t` of the matrix's home stores of it.
  virtual std::vector<Rectangle> pieces(int32_t matrix, int32_t t) const = 0;
  virtual int64_t bytes_per_element() const = 0;  // of what moves
};

// Tensors that are cut over the same ranks, and what was decided of them. Most
// models have one part.
struct PlanPart : SettledRequest {
  std::vector<Buffer> buffers;
  std::vector<Bucket> buckets;
  std::vector<int32_t> home;  // per tensor, in its buffer; kEveryHome for
                              // AdamW tensors and repeated updates
  OwnerLists owners;          // per matrix: tp coordinates in the home
  std::vector<int32_t> micro_group;  // per matrix, numbered from 0 in each home
  PlanSummary summary;

  // Derived when the plan is made or read, not stored.
  std::string name;              // "dense tensors"; "" for the only part
  std::vector<int32_t> tensors;  // their numbers in the whole model
  bool of_experts = false;       // experts only, beside a dense part
  // Its homes are those of ep coordinate `e` out of `ep`.
  int32_t ep = 1;
  int32_t e = 0;
  int32_t first_bucket = 0;  // buckets are counted over all parts
  Mesh grid;                 // the mesh it was planned on, folded (zero.h)
  std::vector<int32_t> bucket_of;            // per tensor
  std::shared_ptr<const GivenPieces> given;  // null for own layouts

  const Buffer& buffer_of(int32_t tensor) const {
    return buffers[static_cast<size_t>(
        buckets[static_cast<size_t>(bucket_of[static_cast<size_t>(tensor)])]
            .buffer)];
  }
  // Returns the number, among all homes of the stage, of home `h` of a buffer.
  int32_t stage_home(const Buffer& buffer, int32_t h) const {
    return buffer.ep < 0 ? h : grid.home_of_expert(h, buffer.ep);
  }

  // Return the rank in the whole plan of a rank of this part, and its node.
  int32_t rank_in_whole(int32_t world_rank) const;
  int32_t node_of(int32_t world_rank) const;

  // Replicas do the same work; each of them has as many ranks as the grid.
  int32_t num_replicas() const { return mesh.world() / grid.world(); }
};

// The part in which a tensor of the whole model is planned.
struct TensorInPart {
  int32_t part = 0;
  int32_t tensor = 0;  // its number there
};

struct Plan : SettledRequest {
  std::vector<PlanPart> parts;  // at least one
  PlanSummary summary;
  std::string digest;  // SHA-256 of everything above that is stored

  // Derived when the plan is made or read, not stored.
  std::vector<TensorInPart> in_part;  // per tensor
};

// Returns the phase of each matrix: its number in name order modulo `phases`.
std::vector<int32_t> phases_by_name(const Model& model,
                                    const std::vector<Matrix>& matrices,
                                    const Splits& splits, int32_t phases);

// Fill in the fields that are derived from stored ones: first those of the
// request, then those of the parts.
void derive(Plan& plan);
void derive_request(SettledRequest& request);
void derive_parts(Plan& plan);
void derive(PlanPart& part);

// A part of a plan is a set of tensors that are cut over the same ranks. Most
// plans have one part. If experts are cut over other ranks than dense tensors,
// there are
//
//   plan.parts[0]       dense tensors, over all dp x cp x ep homes
//   plan.parts[1 + e]   experts of ep coordinate e, over its dp x cp homes
//
// Slices (zero.h) of dense tensors lie on consecutive homes, those of experts
// on consecutive homes of one ep coordinate, and no single grid describes both.
// So each part is planned separately, on a mesh without ep. A rank works in two
// parts, and its memory, bytes and loads are the sums of both.
//
// ZeRO-1 needs only one part: the same grid cuts the homes of both kinds. Pure;
// any thread.

// Returns the sizes for experts that stay on the ranks over which dense tensors
// are cut: a group of z homes contains that many expert homes of each ep
// coordinate.
ZeroSizes experts_beside(const ZeroSizes& sizes, const Mesh& mesh);

// Returns the sizes for dense tensors and experts, checked and with all
// defaults filled in. The sizes for experts are left out if both are planned as
// one part. The UsageError names what does not divide.
ZeroOptions resolve_zero(const ZeroOptions& options, const Mesh& mesh,
                         const Model& model);

bool has_experts(const Model& model);

// True if experts are cut over other ranks than dense tensors.
bool cuts_experts_apart(const SettledRequest& whole);
int32_t num_parts(const SettledRequest& whole);

// Sorts the tensors of `plan`, whose request is settled, into parts without any
// decisions.
void make_parts(Plan& plan);
// The same without the tensors and matrices themselves.
std::vector<PlanPart> parts_without_tensors(const SettledRequest& whole);
// Derives the options of a part from those of the whole plan. The memory cap is
// dropped because it limits the sum over a rank's parts.
PlanOptions options_of_part(const SettledRequest& whole, const PlanPart& part);

// A part in which a rank works, and its rank number there.
struct RankInPart {
  int32_t part = 0;
  int32_t rank = 0;
};
std::vector<RankInPart> parts_of_rank(const Plan& plan, int32_t world_rank);
// Returns one part of each kind. A rank works in one part of each kind, and the
// expert parts of all ep coordinates are alike.
std::span<const PlanPart> kinds_of_parts(const Plan& plan);

// The number of a matrix of the whole plan inside its part.
struct MatrixInPart {
  const PlanPart* part = nullptr;
  int32_t matrix = 0;
};
MatrixInPart matrix_in_part(const Plan& plan, int32_t matrix);

}  // namespace canzona
