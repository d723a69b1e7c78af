// A RankLayout says where the buckets and tensors of one rank lie: a flat run
// of elements for its parameters, and one for its gradients.
//
//   RankLayout layout = lay_out_rank(plan, coordinates_of(plan.grid, rank));
//   float* g = gradients + layout.gradients.tensors[tensor].first;
//
// A rank keeps some slices of every tensor (plan/zero.h), of parameters and of
// gradients not always the same ones. In a bucket lie, for each home and each
// of these slices, the pieces that belong to them side by side: so what
// travels between data-parallel ranks is one run. If all slices of several are
// kept, tensors lie whole instead, as the model uses them, and the runs are
// places in a staging area.
//
// Made from the plan alone; no memory is touched.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/rank_group.h"

namespace canzona {

// The runs of a bucket: what each home keeps of each slice (zero.h).
//
//   int64_t own = matrix_runs(plan, bucket, slice)[home];
//
// With one place there is one slice, the whole TP plane, and runs are what the
// bucket's cuts say. With several the cuts say how the slices together are
// shared out; each slice follows in proportion.

// Elements of a slice of a bucket's tensors: all of the matrix rule's, all of
// AdamW's.
int64_t matrix_slice(const PlanPart& part, const Bucket& bucket, int32_t slice);
int64_t adamw_slice(const PlanPart& part, const Bucket& bucket, int32_t slice);

// Returns what each home keeps of them; all of it if every home does. Padding
// is counted where the plan pads.
std::vector<int64_t> matrix_runs(const PlanPart& part, const Bucket& bucket,
                                 int32_t slice);
std::vector<int64_t> adamw_runs(const PlanPart& part, const Bucket& bucket,
                                int32_t slice);
// Returns where each home's run of AdamW's elements begins, and the end.
std::vector<int64_t> adamw_slice_cuts(const PlanPart& part,
                                      const Bucket& bucket, int32_t slice);

// Slices that a rank at `place` keeps where they are cut over z homes.
Extent kept_slices(const Mesh& grid, int32_t place, int32_t z);

// The tensors at rest: frozen ones have parameters alone.
enum class Resting { kParameters, kGradients };

// True if both are cut alike and nothing is frozen: then they have the same
// layout and the same messages.
bool lie_alike(const PlanPart& part);

// Elements of a bucket that a rank keeps, by its place: padding included,
// unless it keeps all of several slices, where tensors lie whole.
std::vector<int64_t> kept_elements(const PlanPart& part, const Bucket& bucket,
                                   Resting what);
// All slices of a bucket, padding included: what goes round between ranks.
int64_t message_elements(const PlanPart& part, const Bucket& bucket,
                         Resting what);

// Room on the ranks of a stage for gradients of frozen tensors, one at a time,
// which nobody reads.
int64_t forgotten_elements(const PlanPart& part, int32_t stage);

// One region of a bucket: tensors of the matrix rule, or AdamW's.
struct Region {
  Extent all;
  Extent own;  // this rank's run; everything where each keeps all of it
};

struct RankBucket {
  int32_t bucket = 0;  // number in the plan
  bool of_experts = false;
  int32_t home = 0;  // this rank's, among those that share the bucket
  Extent all;
  Region matrices;  // padding included
  Region elements;  // of AdamW
  // Frozen tensors follow, in `all` alone.
};

// The pieces that are kept of each tensor: from its tp shard to its place in
// the regions.
class PiecesByTensor {
 public:
  explicit PiecesByTensor(size_t num_tensors = 0) : runs_(num_tensors) {}
  // Those of one tensor are added one after another.
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
  bool whole = true;    // all slices are: tensors lie as the model uses them
  bool staged = false;  // they do, and regions are places of a staging area
  std::vector<RankBucket> buckets;  // in the plan's order
  // The tp shard of a tensor; in the flat buffer, if it lies whole.
  struct Shard : Extent {
    int32_t bucket = -1;  // number in `buckets`; -1: not on this rank
  };
  std::vector<Shard> tensors;  // by tensor
  PiecesByTensor pieces;
  int64_t num_elements = 0;
  int64_t forgotten = 0;  // where gradients of frozen tensors are written to

  // Returns where an element of a shard lies in the flat buffer. Requires its
  // slice to be kept.
  int64_t place_of(int32_t tensor, int64_t in_shard) const;
  int64_t place_of(int32_t tensor, const ExtentCopy& piece) const {
    return staged ? tensors[static_cast<size_t>(tensor)].first + piece.from
                  : piece.to;
  }
};

struct RankLayout {
  FlatLayout parameters;
  FlatLayout gradients;
};

RankLayout lay_out_rank(const PlanPart& plan, const Coordinates& at);

// Lays out single buckets, for whoever needs no more of a rank. The plan
// outlives it.
class BucketPlacer {
 public:
  struct TensorPiece {
    int32_t number = 0;  // of the tensor in the bucket
    ExtentCopy piece;
  };

  BucketPlacer(const PlanPart& plan, const Coordinates& at, Resting what);

  Extent slices() const { return slices_; }  // that are kept
  // The bucket with its regions from element `first` on.
  RankBucket place(int32_t bucket, int64_t first);
  // Those of the bucket that was placed last, by tensor.
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

}  // namespace canzona
