// Where the buckets and tensors of one rank lie: a flat run of elements for its
// parameters, and one for its gradients.
//
//   RankLayout layout = lay_out_rank(plan, coordinates_of(plan.grid, rank));
//   float* g = gradients + layout.gradients.tensors[tensor].first;
//
// A rank keeps some slices of every tensor (plan/zero.h), of parameters and of
// gradients not always the same ones. In a bucket lie, for each home and each
// of these slices, the pieces that belong to them side by side: so what
// travels between data-parallel ranks is one run. Where all slices of several
// are kept, tensors lie whole instead, as the model uses them, and the runs are
// places in a staging area.
//
// Made from the plan alone; no memory is touched.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/schedule/coordinates.h"
#include "canzona/plan/schedule/runs.h"

namespace canzona {

// One region of a bucket: tensors of the matrix rule, or AdamW's. `counts` say
// how much each rank of the exchange keeps; none where each keeps everything,
// or whatever it owns.
struct Region {
  Extent all;
  std::vector<int64_t> counts;
  Extent own;  // this rank's part; everything if there are no counts
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

struct FlatLayout {
  Extent slices;        // that are kept
  bool whole = true;    // all slices are: tensors lie as the model uses them
  bool staged = false;  // they do, and regions are places of a staging area
  std::vector<RankBucket> buckets;  // in the plan's order
  // The tp shard of a tensor; in the flat buffer, if it lies whole.
  struct Place : Extent {
    int32_t bucket = -1;  // number in `buckets`; -1: not on this rank
  };
  std::vector<Place> tensors;  // by tensor
  // By tensor, what is kept: from its tp shard to its place in the regions.
  std::vector<std::vector<ExtentCopy>> pieces;
  int64_t num_elements = 0;
  int64_t forgotten = 0;  // where gradients of frozen tensors are written to

  // Where an element of a shard lies in the flat buffer; its slice is kept.
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

RankLayout lay_out_rank(const PlanPart& plan, const Coordinates& place);
FlatLayout lay_out_slices(const PlanPart& plan, const Coordinates& place,
                          Resting what);

}  // namespace canzona
