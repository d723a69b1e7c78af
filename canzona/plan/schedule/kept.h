// The pieces of matrices and the run of AdamW elements that a rank keeps.
// Master weights and states with the shard lie in this order.
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

// A rectangle of a matrix that is contiguous in the flat buffer.
struct Piece : Rectangle {
  int64_t parameter = 0;  // in the flat buffer of parameters
  int64_t gradient = 0;   // in that of gradients
  int64_t in_shard = 0;   // in the tensor's tp shard
  int64_t kept = 0;       // among the kept elements of its kind
};

struct KeptMatrix {
  int32_t matrix = 0;  // number in the plan
  std::vector<int64_t> dims;
  bool cut = false;  // tensor parallelism cuts its tensor
  Extent kept;       // its pieces, one after another
  std::vector<Piece> pieces;
  // True if the whole matrix lies here contiguously.
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

// True on exactly one of the tp ranks that keep the same elements of a shard;
// that rank counts them where each element must be counted once. `at` is in the
// grid.
bool counts_shard(const PlanPart& part, const Coordinates& at, int32_t tensor);
// The same for states, of which other homes and replicas have copies.
bool counts_states(const PlanPart& part, int32_t rank, int32_t tensor);
// Returns the first rank that keeps the same parameters of dense tensors, or of
// experts, as rank `rank` of the part. keeps_first_copy() tells whether this is
// the rank itself and whether it counts the shard.
int32_t first_with_parameters(const PlanPart& part, int32_t rank,
                              bool of_experts);
bool keeps_first_copy(const PlanPart& part, int32_t rank, int32_t tensor);

// The reduced gradients that are checked before a rule uses them. A rank scales
// everything that it keeps; every element of the model is counted by one rank.
struct CheckedGradients {
  std::vector<Extent> scaled;
  std::vector<Extent> counted;
  std::vector<int32_t> tensor;    // of each counted extent
  std::vector<Extent> uncounted;  // scaled, but counted by another rank
};
CheckedGradients checked_gradients(const PlanPart& part, const Coordinates& at,
                                   const RankLayout& layout, const Kept& kept);

// Returns the positions of a tp shard's elements in the whole row-major tensor.
std::vector<ExtentCopy> logical_runs(const Tensor& tensor, int32_t tp,
                                     int32_t t);

}  // namespace canzona
