#include "canzona/plan/schedule/kept.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/index.h"
#include "canzona/plan/schedule/routes.h"

namespace canzona {
namespace {

KeptMatrix kept_matrix(const PlanPart& plan, int32_t m, int32_t t,
                       const RankLayout& layout, int64_t kept) {
  const Matrix& matrix = plan.matrices[index(m)];
  KeptMatrix out;
  out.matrix = m;
  out.dims = {matrix.rows, matrix.cols};
  out.cut = plan.model.tensors[index(matrix.tensor)].cut != Cut::kNone &&
            plan.grid.tp_ranks() > 1;
  out.kept.first = kept;
  for (const Route& r : routes_of(plan, m)) {
    if (r.t != t) continue;
    // A shard has the columns of its routes and no others.
    const int64_t in_shard = r.shard_row * r.num_cols;
    out.pieces.push_back({r,
                          layout.parameters.place_of(matrix.tensor, in_shard),
                          layout.gradients.place_of(matrix.tensor, in_shard),
                          in_shard, out.kept.end()});
    out.kept.count += r.elements();
  }
  return out;
}

// AdamW's elements in this rank's part of a bucket.
void add_elements(const PlanPart& plan, const RankLayout& layout,
                  const RankBucket& bucket, Kept& kept) {
  const Bucket& planned = plan.buckets[index(bucket.bucket)];
  const Extent own = bucket.elements.own;
  for (size_t i = index(planned.num_matrix_tensors); i < planned.tensors.size();
       ++i) {
    const int32_t t = planned.tensors[i];
    for (const ExtentCopy& piece : layout.gradients.pieces[index(t)]) {
      const Extent in_shard = piece.to_within(own).source();
      if (in_shard.count == 0) continue;
      kept.elements.push_back(
          {t, in_shard, layout.parameters.place_of(t, in_shard.first),
           layout.gradients.place_of(t, in_shard.first), kept.num_elements});
      kept.num_elements += in_shard.count;
    }
  }
}

}  // namespace

Kept kept_by(const PlanPart& plan, const Coordinates& place,
             const RankLayout& layout) {
  Kept kept;
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    const int32_t tensor = plan.matrices[m].tensor;
    const FlatLayout& gradients = layout.gradients;
    const int32_t bucket = gradients.tensors[index(tensor)].bucket;
    if (bucket < 0) continue;
    const int32_t home = plan.home[index(tensor)];
    if (home != kEveryHome && home != gradients.buckets[index(bucket)].home)
      continue;
    kept.matrices.push_back(kept_matrix(plan, static_cast<int32_t>(m), place.t,
                                        layout, kept.num_in_matrices));
    kept.num_in_matrices += kept.matrices.back().kept.count;
  }
  for (const RankBucket& bucket : layout.gradients.buckets)
    add_elements(plan, layout, bucket, kept);
  return kept;
}

std::vector<ExtentCopy> logical_runs(const Tensor& tensor, int32_t tp,
                                     int32_t t) {
  std::vector<ExtentCopy> runs;
  const int64_t cols = tensor.cols();
  const Matrix whole{0, -1, 0, tensor.rows(), cols};
  for (const Route& r : routes_of(tensor, whole, tp)) {
    if (r.t != t) continue;
    if (r.num_cols == cols) {
      runs.push_back(
          {r.shard_row * cols, r.first_row * cols, r.num_rows * cols});
      continue;
    }
    for (int64_t i = 0; i < r.num_rows; ++i)
      runs.push_back({(r.shard_row + i) * r.num_cols,
                      (r.first_row + i) * cols + r.first_col, r.num_cols});
  }
  return runs;
}

}  // namespace canzona
