// Where the buckets and tensors of one rank lie: one flat run of elements for
// all of its buckets, the same for parameters and for gradients.
//
//   RankLayout layout = lay_out_rank(plan, place_of(plan.mesh, rank));
//   float* g = gradients + layout.tensors[tensor].first;
//
// Made from the plan alone; no memory is touched.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/runtime/rank_place.h"

namespace canzona {

// A run of elements of the flat buffer.
struct Extent {
  int64_t first = 0;
  int64_t count = 0;
  int64_t end() const { return first + count; }
  friend bool operator==(const Extent&, const Extent&) = default;
};

// One region of a bucket: tensors of the matrix rule, or AdamW's. `counts` say
// how much each home keeps; none where every home keeps everything, or
// whatever it owns.
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
};

struct RankLayout {
  std::vector<RankBucket> buckets;  // in the plan's order
  struct Place {
    int32_t bucket = -1;  // number in `buckets`; -1: not on this rank
    int64_t first = 0;    // in the flat buffer
    int64_t count = 0;    // of the tp shard
  };
  std::vector<Place> tensors;  // by tensor
  int64_t num_elements = 0;
};

RankLayout lay_out_rank(const Plan& plan, const RankPlace& place);

}  // namespace canzona
