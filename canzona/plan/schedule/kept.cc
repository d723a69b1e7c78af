#include "canzona/plan/schedule/rank_layout.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/plan/schedule/routes.h"

namespace canzona {
using namespace plan;
namespace {

KeptMatrix kept_matrix(const PlanPart& part, int32_t m, int32_t t,
                       const RankLayout& layout, int64_t kept) {
  const Matrix& matrix = part.matrices[index(m)];
  KeptMatrix out;
  out.matrix = m;
  out.dims = {matrix.rows, matrix.cols};
  out.cut = part.model.tensors[index(matrix.tensor)].cut != Cut::kNone &&
            part.grid.tp_ranks() > 1;
  out.kept.first = kept;
  std::vector<Route> routes;
  append_routes(part, m, t, routes);
  for (const Route& r : routes) {
    // A shard has the columns of its routes and no others.
    const int64_t in_shard = r.shard_row * r.num_cols;
    out.pieces.push_back({r,
                          layout.parameters.offset_of(matrix.tensor, in_shard),
                          layout.gradients.offset_of(matrix.tensor, in_shard),
                          in_shard, out.kept.end()});
    out.kept.count += r.elements();
  }
  return out;
}

// Adds the elements of AdamW tensors that this rank keeps of a bucket.
void add_elements(const PlanPart& part, const RankLayout& layout,
                  const RankBucket& bucket, Kept& kept) {
  const Bucket& planned = part.buckets[index(bucket.bucket)];
  const Extent own = bucket.elements.own;
  for (size_t i = index(planned.num_matrix_tensors); i < planned.tensors.size();
       ++i) {
    const int32_t t = planned.tensors[i];
    for (const ExtentCopy& piece : layout.gradients.pieces[index(t)]) {
      const Extent in_shard = piece.to_within(own).source();
      if (in_shard.count == 0) continue;
      kept.elements.push_back(
          {t, in_shard, layout.parameters.offset_of(t, in_shard.first),
           layout.gradients.offset_of(t, in_shard.first), kept.num_elements});
      kept.num_elements += in_shard.count;
    }
  }
}

// Returns what this rank counts of a shard, so that each element is counted
// once: homes that keep a whole tensor count even slices of it, and of tp ranks
// that store the same data the first counts.
Extent counted_of(const PlanPart& part, const Coordinates& at,
                  const FlatLayout& gradients, int32_t tensor,
                  const Extent& extent) {
  if (!counts_shard(part, at, tensor)) return {};
  if (part.traffic != Traffic::kAllReduce) return extent;
  const RankBucket& bucket =
      gradients.buckets[index(gradients.tensors[index(tensor)].bucket)];
  const int64_t homes = part.buffer_of(tensor).num_homes;
  const int64_t begin = bucket.all.count * bucket.home / homes;
  const int64_t end = bucket.all.count * (bucket.home + 1) / homes;
  return extent.meet({bucket.all.first + begin, end - begin});
}

// Everything that is counted is scaled, too; this finds the gaps, which are
// only scaled.
void find_uncounted(CheckedGradients& out) {
  std::vector<Extent> counted = out.counted;
  std::ranges::sort(counted, {}, &Extent::first);
  int64_t num_met = 0;
  for (const Extent& extent : out.scaled) {
    int64_t begin = extent.first;
    const auto add_until = [&](int64_t end) {
      if (end > begin) out.uncounted.push_back({begin, end - begin});
    };
    auto c = std::ranges::partition_point(counted, [&](const Extent& before) {
      return before.end() <= extent.first;
    });
    for (; c != counted.end() && c->first < extent.end(); ++c) {
      const Extent both = extent.meet(*c);
      if (both.count == 0) continue;
      add_until(both.first);
      begin = both.end();
      num_met += both.count;
    }
    add_until(extent.end());
  }
  for (const Extent& c : counted) num_met -= c.count;
  CANZONA_CHECK_EQ(num_met, 0, "elements counted, but not scaled");
}

}  // namespace

Kept kept_by(const PlanPart& part, const Coordinates& at,
             const RankLayout& layout) {
  Kept kept;
  for (size_t m = 0; m < part.matrices.size(); ++m) {
    const int32_t tensor = part.matrices[m].tensor;
    const FlatLayout& gradients = layout.gradients;
    const int32_t bucket = gradients.tensors[index(tensor)].bucket;
    if (bucket < 0) continue;
    const int32_t home = part.home[index(tensor)];
    if (home != kEveryHome && home != gradients.buckets[index(bucket)].home)
      continue;
    kept.matrices.push_back(kept_matrix(part, static_cast<int32_t>(m), at.t,
                                        layout, kept.num_in_matrices));
    kept.num_in_matrices += kept.matrices.back().kept.count;
  }
  for (const RankBucket& bucket : layout.gradients.buckets)
    add_elements(part, layout, bucket, kept);
  return kept;
}

bool counts_shard(const PlanPart& part, const Coordinates& at, int32_t tensor) {
  return part.model.tensors[index(tensor)].cut != Cut::kNone || at.tp_rank == 0;
}

bool counts_states(const PlanPart& part, int32_t rank, int32_t tensor) {
  if (replica_of(part, rank) != 0) return false;
  const Coordinates at = in_grid(part, rank);
  return part.traffic != Traffic::kAllReduce ||
         at.home_in(part.buffer_of(tensor)) == 0;
}

int32_t first_with_parameters(const PlanPart& part, int32_t rank,
                              bool of_experts) {
  const Coordinates at = coordinates_of(part.mesh, rank);
  const int32_t home = of_experts ? part.mesh.home_of_expert(0, at.ep)
                                  : at.home % part.options.zero.sizes.z3;
  return part.mesh.rank(at.stage, home, at.t);
}

bool keeps_first_copy(const PlanPart& part, int32_t rank, int32_t tensor) {
  const Coordinates at = coordinates_of(part.mesh, rank);
  const int32_t home = at.home_in(part.buffer_of(tensor));
  return home < part.options.zero.sizes.z3 &&
         (part.model.tensors[index(tensor)].cut != Cut::kNone || at.t == 0);
}

CheckedGradients checked_gradients(const PlanPart& part, const Coordinates& at,
                                   const RankLayout& layout, const Kept& kept) {
  CheckedGradients out;
  // A rank keeps one run of each bucket, padding included, unless it stores
  // whole tensors.
  const bool in_runs =
      part.traffic != Traffic::kBroadcast && !layout.gradients.staged;
  const auto add = [&](int32_t tensor, const Extent& extent) {
    if (!in_runs && extent.count > 0) out.scaled.push_back(extent);
    const Extent own = counted_of(part, at, layout.gradients, tensor, extent);
    if (own.count == 0) return;
    out.counted.push_back(own);
    out.tensor.push_back(tensor);
  };
  for (const KeptMatrix& matrix : kept.matrices)
    for (const Piece& piece : matrix.pieces)
      add(part.matrices[index(matrix.matrix)].tensor,
          {piece.gradient, piece.elements()});
  for (const KeptElements& elements : kept.elements)
    add(elements.tensor, {elements.gradient, elements.in_shard.count});
  for (const RankBucket& bucket : layout.gradients.buckets)
    for (const Region* region : {&bucket.matrices, &bucket.elements})
      if (in_runs && region->own.count > 0) out.scaled.push_back(region->own);
  find_uncounted(out);
  return out;
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
