// The layout of one rank's buckets and tensors, one flat array of elements for
// its parameters and one for its gradients, and what the rank keeps of them.
//
//   RankLayout layout = lay_out_rank(plan, coordinates_of(plan.grid, rank));
//   float* g = gradients + layout.gradients.tensors[tensor].first;
//
// A rank keeps some slices of every tensor (plan/zero.h), not always the same
// ones of parameters and gradients. Within a bucket, the pieces that belong to
// one home and one of these slices lie side by side, so that the data that
// travels between data-parallel ranks is one run. If a rank keeps all of
// several slices, tensors lie whole instead, as the model uses them, and the
// runs are places in a staging area.
//
// Made from the plan alone; no memory is touched.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/rank_group.h"

namespace canzona {

// The runs of a bucket: the elements of each slice that each home keeps
// (zero.h).
//
//   int64_t own = matrix_runs(plan, bucket, slice)[home];
//
// With one place there is one slice, the whole TP plane, and the bucket's cuts
// are the runs. With several places the cuts divide all slices together, and
// each slice is divided in proportion.

// Return the elements of one slice of a bucket's matrix-rule or AdamW tensors.
int64_t matrix_slice(const PlanPart& part, const Bucket& bucket, int32_t slice);
int64_t adamw_slice(const PlanPart& part, const Bucket& bucket, int32_t slice);

// Return what each home keeps of a slice, which is everything if every home
// keeps all. Includes the plan's padding.
std::vector<int64_t> matrix_runs(const PlanPart& part, const Bucket& bucket,
                                 int32_t slice);
std::vector<int64_t> adamw_runs(const PlanPart& part, const Bucket& bucket,
                                int32_t slice);
// Returns where each home's run of AdamW elements begins, and the end.
std::vector<int64_t> adamw_slice_cuts(const PlanPart& part,
                                      const Bucket& bucket, int32_t slice);

// Returns the slices that a rank at `place` keeps if they are cut over z homes.
Extent kept_slices(const Mesh& grid, int32_t place, int32_t z);

// The memory at rest: parameters, or gradients, which frozen tensors do not
// have.
enum class Resting { kParameters, kGradients };

// True if parameters and gradients are cut alike and nothing is frozen, so that
// they have the same layout and messages.
bool lie_alike(const PlanPart& part);

// Returns the elements of a bucket that a rank keeps, by its place. Includes
// padding unless the rank keeps all of several slices, in which case tensors
// lie whole.
std::vector<int64_t> kept_elements(const PlanPart& part, const Bucket& bucket,
                                   Resting what);
// Returns the elements of all slices of a bucket, padding included: the size of
// its message.
int64_t message_elements(const PlanPart& part, const Bucket& bucket,
                         Resting what);

// Returns the scratch space on the ranks of a stage for gradients of frozen
// tensors, one at a time, which are never read.
int64_t forgotten_elements(const PlanPart& part, int32_t stage);

// One region of a bucket: tensors of the matrix rule, or AdamW's.
struct Region {
  Extent all;
  Extent own;  // this rank's run; everything if every home keeps all
};

struct RankBucket {
  int32_t bucket = 0;  // number in the plan
  bool of_experts = false;
  int32_t home = 0;  // this rank's, among the homes of the bucket
  Extent all;
  Region matrices;  // padding included
  Region elements;  // of AdamW
  // Frozen tensors follow, in `all` alone.
};

// The kept pieces of each tensor: copies from its tp shard to its place in the
// regions.
class PiecesByTensor {
 public:
  explicit PiecesByTensor(size_t num_tensors = 0) : runs_(num_tensors) {}
  // Pieces of one tensor are added consecutively.
  void add(int32_t tensor, const ExtentCopy& piece);
  std::span<const ExtentCopy> operator[](size_t tensor) const {
    const Extent& run = runs_[tensor];
    return {pieces_.data() + run.first, static_cast<size_t>(run.count)};
  }

 private:
  std::vector<ExtentCopy> pieces_;
  std::vector<Extent> runs_;  // in pieces_, by tensor
};

struct FlatLayout {
  Extent slices;        // that are kept
  bool whole = true;    // all slices are kept: tensors lie as the model uses
                        // them
  bool staged = false;  // whole, and regions are places in a staging area
  std::vector<RankBucket> buckets;  // in the plan's order
  // The tp shard of a tensor; an extent of the flat buffer if it lies whole.
  struct Shard : Extent {
    int32_t bucket = -1;  // number in `buckets`; -1: not on this rank
  };
  std::vector<Shard> tensors;  // by tensor
  PiecesByTensor pieces;
  int64_t num_elements = 0;
  int64_t forgotten = 0;  // where discarded gradients of frozen tensors go

  // Returns the position of an element of a shard in the flat buffer. Requires
  // its slice to be kept.
  int64_t offset_of(int32_t tensor, int64_t in_shard) const;
  int64_t offset_of(int32_t tensor, const ExtentCopy& piece) const {
    return staged ? tensors[static_cast<size_t>(tensor)].first + piece.from
                  : piece.to;
  }
};

struct RankLayout {
  FlatLayout parameters;
  FlatLayout gradients;
};

RankLayout lay_out_rank(const PlanPart& plan, const Coordinates& at);

// Lays out single buckets, for callers that need nothing else of a rank. The
// plan must outlive it.
class BucketPlacer {
 public:
  struct TensorPiece {
    int32_t number = 0;  // of the tensor in the bucket
    ExtentCopy piece;
  };

  BucketPlacer(const PlanPart& plan, const Coordinates& at, Resting what);

  Extent slices() const { return slices_; }  // that are kept
  // Returns the bucket with its regions, from element `first` on.
  RankBucket place(int32_t bucket, int64_t first);
  // The pieces of the bucket that was placed last, sorted by tensor.
  std::span<const TensorPiece> pieces() const { return pieces_; }

 private:
  struct Runs;
  struct Walk;

  int32_t slice(int32_t i) const {
    return static_cast<int32_t>(slices_.first) + i;
  }
  const Tensor& tensor(int32_t number) const;
  Extent in_shard(int32_t number, int32_t i) const;
  template <class OfHomes>
  Runs runs_of(const OfHomes& of_homes) const;
  Region region_of(int64_t first, const Runs& runs, bool shared,
                   int32_t home) const;
  Region place_matrices(int64_t first, int32_t home);
  void put_matrices(int32_t i, int64_t first, bool shared, const Runs& runs);
  Region place_elements(int64_t first, int32_t home);
  void put_elements(int32_t i, Walk& walk, int64_t at, int64_t count);
  int64_t place_frozen(int64_t at);
  void put(int32_t number, const ExtentCopy& piece);
  void sort_and_join();

  const PlanPart& plan_;
  Coordinates at_;
  Resting what_;
  Extent slices_;
  int32_t own_slice_;  // among those that are kept
  const Bucket* bucket_ = nullptr;
  std::vector<TensorPiece> pieces_;
};

// The pieces of matrices and the run of AdamW elements that a rank keeps.
// Master weights and states with the shard lie in this order.
//
//   Kept kept = kept_by(plan, at, layout);
//   for (const Piece& p : kept.matrices[i].pieces) …
//
// Made from the plan alone; no memory is touched.

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
