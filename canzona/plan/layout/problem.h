// The input of every strategy, and what it decides.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "canzona/plan/plan.h"

namespace canzona {
class CostTable;
}

namespace canzona::plan {

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
int64_t adamw_bytes_per_element(const PlanOptions& options);

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

// Homes are numbered per buffer; returns the number among all homes of the
// stage.
int32_t stage_home(const Problem& p, int32_t tensor, int32_t home);

// Returns the matrices of every home of every stage, at [stage · homes + home],
// in plan order.
std::vector<std::vector<int32_t>> matrices_by_home(const Problem& p,
                                                   const Assignment& a);

// Returns the fp32 bytes of the TP shard of one matrix, as the option
// `capacity` counts them.
int64_t exchange_bytes(const Problem& p, int32_t matrix);

// Returns a matrix's weight over a period.
int64_t period_weight_of(const Problem& p, int32_t matrix);

}  // namespace canzona::plan
