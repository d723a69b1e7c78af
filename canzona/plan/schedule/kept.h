// A rank keeps its pieces of the matrices whose home it belongs to, and its run
// of AdamW's elements. Master weights and states that live with the shard lie
// in this order.
//
//   Kept kept = kept_by(plan, at, layout);
//   for (const Piece& p : kept.matrices[i].pieces) …
//
// Made from the plan alone; no memory is touched.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/schedule/rank_layout.h"

namespace canzona {

// A rectangle of a matrix that is one run of the flat buffer.
struct Piece : Rectangle {
  int64_t parameter = 0;  // in the flat buffer of parameters
  int64_t gradient = 0;   // in that of gradients
  int64_t in_shard = 0;   // in the tensor's tp shard
  int64_t kept = 0;       // among what the rank keeps of its kind
};

struct KeptMatrix {
  int32_t matrix = 0;  // number in the plan
  std::vector<int64_t> dims;
  bool cut = false;  // tensor parallelism cuts its tensor
  Extent kept;       // its pieces, one after another
  std::vector<Piece> pieces;
  // True if all of it lies here as one run.
  bool whole() const {
    return pieces.size() == 1 && pieces[0].elements() == dims[0] * dims[1];
  }
};

// Part of a tensor that AdamW updates.
struct KeptElements {
  int32_t tensor = 0;
  Extent in_shard;        // of the tensor's tp shard
  int64_t parameter = 0;  // in the flat buffer of parameters
  int64_t gradient = 0;   // in that of gradients
  int64_t kept = 0;       // among the rank's elements of AdamW
};

struct Kept {
  std::vector<KeptMatrix> matrices;  // in the plan's order
  std::vector<KeptElements> elements;
  int64_t num_in_matrices = 0;
  int64_t num_elements = 0;
};

Kept kept_by(const PlanPart& part, const Coordinates& at,
             const RankLayout& layout);

// Several ranks keep the same of a tensor; where each number is wanted once,
// one of them gives it. True on exactly one of the tp ranks that keep the same
// of a shard; `at` is of the grid.
bool counts_shard(const PlanPart& part, const Coordinates& at, int32_t tensor);
// The same of states, of which other homes and replicas have copies.
bool counts_states(const PlanPart& part, int32_t rank, int32_t tensor);
// The first rank that keeps the same parameters of dense tensors, or of
// experts, as rank `rank` of the part; and whether that is the rank itself, and
// of those that keep the same shard it counts.
int32_t first_with_parameters(const PlanPart& part, int32_t rank,
                              bool of_experts);
bool keeps_first_copy(const PlanPart& part, int32_t rank, int32_t tensor);

// Reduced gradients as they are looked at before a rule sees them: everything
// that the rank keeps is scaled, and every element of the model is counted by
// one rank.
struct CheckedGradients {
  std::vector<Extent> scaled;
  std::vector<Extent> counted;
  std::vector<int32_t> tensor;    // of each that is counted
  std::vector<Extent> uncounted;  // scaled, but counted by another rank
};
CheckedGradients checked_gradients(const PlanPart& part, const Coordinates& at,
                                   const RankLayout& layout, const Kept& kept);

// Returns where the elements of a tp shard are in the whole tensor, row-major.
std::vector<ExtentCopy> logical_runs(const Tensor& tensor, int32_t tp,
                                     int32_t t);

}  // namespace canzona
