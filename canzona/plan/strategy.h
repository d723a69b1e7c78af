// Strategies and micro-group modes: how homes, owners and rounds are decided.
// Each is a function in strategies/ or micro_groups/ and one line in
// strategy.cc; nothing else lists them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "canzona/plan/make_plan.h"
#include "canzona/plan/plan.h"

namespace canzona {

// The input of every strategy: the request, cut into matrices, weighed, and
// sorted into stages, buffers and buckets. Made once, never changed.

// A bucket before anything is assigned: tensors in the order in which backward
// finishes them.
struct OpenBucket {
  int32_t buffer = 0;
  std::vector<int32_t> matrix_tensors;
  std::vector<int32_t> adamw_tensors;
  int64_t elements = 0;  // of matrix-rule TP shards
};

struct Problem {
  const Model& model;
  Mesh grid;  // the mesh, folded (zero.h)
  const RuleFacts& rule;
  PlanOptions options;  // every default filled in

  const std::vector<Matrix>& matrices;
  const std::vector<int32_t>& first_matrix;  // per tensor, and one past the end
  const std::vector<MatrixCost>& costs;      // per matrix: time
  const std::vector<int32_t>& phase;         // per matrix
  std::vector<MatrixCost> weights = {};      // per matrix: what is balanced

  std::vector<Buffer> buffers = {};
  std::vector<OpenBucket> buckets = {};
  std::vector<int32_t> buffer_of = {};       // per tensor
  std::vector<int64_t> shard_elements = {};  // per tensor
  std::vector<int64_t> home_bytes = {};   // per tensor: master and shard-states
  std::vector<int64_t> owner_bytes = {};  // per matrix: states at the owner

  int32_t num_matrices(int32_t tensor) const {
    return first_matrix[static_cast<size_t>(tensor) + 1] -
           first_matrix[static_cast<size_t>(tensor)];
  }
  // Steps of a period by kind: [ordinary, refresh of phase 0, …].
  std::vector<int64_t> steps() const;
  // A matrix's weight in each kind of step.
  std::vector<int64_t> load_of(int32_t matrix) const;
  // A tensor's weight over a whole period.
  int64_t period_weight(int32_t tensor) const;
};

// Ignores any decisions in `part`; part and rule must outlive the problem. With
// `join_small_tail`, a last bucket below half size joins its neighbour.
Problem make_problem(const PlanPart& part, const RuleFacts& rule,
                     const CostTable* cost_table, bool join_small_tail);

// Returns an upper bound on the bytes of memory or traffic of any rank.
// Replicas add up even shares, whose bounds are computed from ranks of the
// mesh.
double most_bytes(const PlanPart& part);

// Bytes per element that every rank of a home keeps for one tensor.
int64_t adamw_bytes_per_element(ParameterDtype parameters);

// The first matrix of each tensor, and one past the end.
std::vector<int32_t> index_matrices(size_t num_tensors,
                                    const std::vector<Matrix>& matrices);

// The phase of each matrix: its place in name order modulo `phases`.
std::vector<int32_t> phases_by_name(const Model& model,
                                    const std::vector<Matrix>& matrices,
                                    const Splits& splits, int32_t phases);

inline constexpr int32_t kEveryTpRank = -1;

// The decisions of strategies and modes.
struct Assignment {
  std::vector<int32_t> home;         // per tensor, in its buffer; or kEveryHome
  std::vector<int32_t> owner;        // per matrix: t, or kEveryTpRank
  std::vector<int32_t> micro_group;  // per matrix
  // The ranks that share a matrix, for matrices of teams, head first. `owner`
  // is the head.
  std::map<int32_t, std::vector<int32_t>> teams = {};
};

struct Strategy {
  const char* name;
  const char* summary;
  const char* micro_groups;  // default mode; "" where tp ranks repeat updates
  Weight weight;             // default
  double alpha;              // default
  Traffic traffic;
  bool free_order;  // tensors may be re-ordered inside a bucket
  bool join_small_tail;
  bool level_adamw;     // AdamW cuts level memory; otherwise even shares
  bool chooses_owners;  // sets Assignment::owner itself
  void (*assign)(const Problem&, Assignment&);
};

// Assigns owners (unless `owners_known`) and rounds to all matrices of one
// home, which come in plan order.
struct MicroGroupMode {
  const char* name;
  const char* summary;
  void (*assign)(const Problem&, std::span<const int32_t> matrices,
                 bool owners_known, Assignment&);
};

const std::vector<Strategy>& strategy_table();
const std::vector<MicroGroupMode>& micro_group_table();

// The UsageError lists the known names and the nearest one.
const Strategy& find_strategy(const std::string& name);
const MicroGroupMode& find_micro_group_mode(const std::string& name);

// Homes are numbered per buffer; returns the number among all homes of the
// stage.
int32_t stage_home(const Problem& p, int32_t tensor, int32_t home);

// Returns the matrices of every home of every stage, at [stage · homes + home],
// in plan order.
std::vector<std::vector<int32_t>> matrices_by_home(const Problem& p,
                                                   const Assignment& a);

// Returns the fp32 bytes of the TP shard of one matrix, as --capacity counts
// them.
int64_t exchange_bytes(const Problem& p, int32_t matrix);

// Returns a matrix's weight over a period.
int64_t period_weight_of(const Problem& p, int32_t matrix);

}  // namespace canzona
