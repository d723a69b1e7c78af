#include "canzona/plan/schedule/rank_layout.h"

#include <algorithm>
#include <numeric>

#include "canzona/base/check.h"
#include "canzona/base/index.h"

namespace canzona {
namespace {

// The runs of one region in the order of the exchange: home by home, in each
// slice by slice.
struct Runs {
  std::vector<int64_t> counts;
  std::vector<int64_t> firsts;
  int64_t count = 0;

  void add(int64_t elements) {
    firsts.push_back(count);
    counts.push_back(elements);
    count += elements;
  }
};

class FlatLayoutMaker {
 public:
  FlatLayoutMaker(const PlanPart& plan, const Coordinates& place, Resting what)
      : plan_(plan), place_(place), what_(what) {
    const ZeroSizes& zero = plan.options.zero.sizes;
    const int32_t z = what == Resting::kParameters ? zero.z3 : zero.z2;
    const Mesh& grid = plan.grid;
    const int32_t at = place.t / grid.tp_ranks();
    out_.slices = kept_slices(grid, at, z);
    own_slice_ = grid.slice_of(at) - first_slice();
    out_.whole = out_.slices.count == grid.places;
    out_.staged = out_.whole && grid.places > 1;
    out_.tensors.resize(plan.model.tensors.size());
    out_.pieces.resize(plan.model.tensors.size());
  }

  FlatLayout make() {
    for (size_t b = 0; b < plan_.buckets.size(); ++b) {
      const Buffer& buffer = plan_.buffers[index(plan_.buckets[b].buffer)];
      if (place_.holds(buffer)) add(static_cast<int32_t>(b), buffer);
    }
    if (what_ == Resting::kGradients) {
      out_.forgotten = out_.num_elements;
      out_.num_elements += forgotten_elements(plan_, place_.stage);
    }
    return std::move(out_);
  }

 private:
  int32_t first_slice() const {
    return static_cast<int32_t>(out_.slices.first);
  }
  int32_t slice(int32_t i) const { return first_slice() + i; }
  const Tensor& tensor(int32_t t) const {
    return plan_.model.tensors[index(t)];
  }

  void add(int32_t number, const Buffer& buffer) {
    const Bucket& bucket = plan_.buckets[index(number)];
    RankBucket mine;
    mine.bucket = number;
    mine.of_experts = buffer.ep >= 0;
    mine.home = place_.home_in(buffer);
    num_homes_ = buffer.num_homes;
    const int64_t first = out_.staged ? 0 : out_.num_elements;
    mine.matrices = place_matrices(bucket, first, mine.home);
    mine.elements = place_elements(bucket, mine.matrices.all.end(), mine.home);
    const int64_t end = place_frozen(bucket, mine.elements.all.end());
    mine.all = {first, end - first};
    note_places(bucket);
    if (!out_.staged) out_.num_elements = mine.all.end();
    out_.buckets.push_back(std::move(mine));
  }

  Region region_of(int64_t first, const Runs& runs, bool shared,
                   int32_t home) const {
    Region region{{first, runs.count}, {}, {first, runs.count}};
    if (shared) return region;
    region.counts = runs.counts;
    const size_t own = index(home * out_.slices.count + own_slice_);
    region.own = {first + runs.firsts[own], runs.counts[own]};
    return region;
  }

  // All slices of all tensors one after another where nobody is given a part.
  Region place_matrices(const Bucket& bucket, int64_t first, int32_t home) {
    const bool shared = bucket.cuts.empty();
    Runs runs;
    if (shared) {
      for (int32_t i = 0; i < out_.slices.count; ++i)
        put_matrices(bucket, i, first + runs.count, kEveryHome, runs);
      return region_of(first, runs, shared, home);
    }
    for (int32_t h = 0; h < num_homes_; ++h)
      for (int32_t i = 0; i < out_.slices.count; ++i) {
        put_matrices(bucket, i, first + runs.count, h, runs);
        const int64_t padded = matrix_runs(plan_, bucket, slice(i))[index(h)];
        runs.count += padded - runs.counts.back();
        runs.counts.back() = padded;
      }
    return region_of(first, runs, shared, home);
  }

  // Slice `i` of the tensors of one home, from `at` on.
  void put_matrices(const Bucket& bucket, int32_t i, int64_t at, int32_t home,
                    Runs& runs) {
    const int64_t begin = at;
    for (int32_t n = 0; n < bucket.num_matrix_tensors; ++n) {
      const int32_t t = bucket.tensors[index(n)];
      if (home != kEveryHome && plan_.home[index(t)] != home) continue;
      const int64_t count = slice_elements(plan_.grid, tensor(t), slice(i));
      put(t, {in_shard(t, i), at, count});
      at += count;
    }
    runs.add(at - begin);
  }

  int64_t in_shard(int32_t t, int32_t i) const {
    return slice_rows(plan_.grid, tensor(t), slice(i)).first *
           shard_cols(plan_.grid, tensor(t));
  }

  Region place_elements(const Bucket& bucket, int64_t first, int32_t home) {
    const bool shared = bucket.adamw_cuts.empty();
    Runs runs;
    const int32_t homes = shared ? 1 : num_homes_;
    for (int32_t h = 0; h < homes; ++h)
      for (int32_t i = 0; i < out_.slices.count; ++i) {
        const Extent cut = cut_of(bucket, i, h);
        put_elements(bucket, i, cut, first + runs.count);
        runs.add(cut.count);
      }
    return region_of(first, runs, shared, home);
  }

  // Returns the end.
  int64_t place_frozen(const Bucket& bucket, int64_t at) {
    if (what_ == Resting::kGradients) return at;
    for (int32_t i = 0; i < out_.slices.count; ++i)
      for (int32_t t : bucket.tensors) {
        if (!tensor(t).frozen) continue;
        const int64_t count = slice_elements(plan_.grid, tensor(t), slice(i));
        put(t, {in_shard(t, i), at, count});
        at += count;
      }
    return at;
  }

  Extent cut_of(const Bucket& bucket, int32_t i, int32_t h) const {
    const std::vector<int64_t> cuts = adamw_slice_cuts(plan_, bucket, slice(i));
    if (cuts.empty()) return {0, adamw_slice(plan_, bucket, slice(i))};
    return {cuts[index(h)], cuts[index(h) + 1] - cuts[index(h)]};
  }

  // Elements `cut` of slice `i` of all tensors, one after another.
  void put_elements(const Bucket& bucket, int32_t i, const Extent& cut,
                    int64_t at) {
    int64_t begin = 0;
    for (size_t n = index(bucket.num_matrix_tensors); n < bucket.tensors.size();
         ++n) {
      const int32_t t = bucket.tensors[n];
      if (tensor(t).frozen) continue;
      const Extent all{begin, slice_elements(plan_.grid, tensor(t), slice(i))};
      const Extent own = all.meet(cut);
      put(t, {in_shard(t, i) + own.first - begin, at + own.first - cut.first,
              own.count});
      begin = all.end();
    }
  }

  // What continues the piece before is joined to it.
  void put(int32_t t, const ExtentCopy& piece) {
    std::vector<ExtentCopy>& pieces = out_.pieces[index(t)];
    if (piece.count == 0) return;
    if (!pieces.empty() && pieces.back().is_continued_by(piece))
      pieces.back().count += piece.count;
    else
      pieces.push_back(piece);
  }

  void note_places(const Bucket& bucket) {
    for (int32_t t : bucket.tensors) {
      FlatLayout::Place& place = out_.tensors[index(t)];
      place.bucket = static_cast<int32_t>(out_.buckets.size());
      if (tensor(t).frozen && what_ == Resting::kGradients) continue;
      place.count = shard_elements(plan_.grid, tensor(t));
      if (out_.staged) {
        place.first = out_.num_elements;
        out_.num_elements += place.count;
      } else if (!out_.pieces[index(t)].empty()) {
        place.first = out_.pieces[index(t)][0].to;
      }
    }
  }

  const PlanPart& plan_;
  const Coordinates& place_;
  Resting what_;
  int32_t own_slice_ = 0;  // among those that are kept
  int32_t num_homes_ = 1;
  FlatLayout out_;
};

}  // namespace

int64_t FlatLayout::place_of(int32_t tensor, int64_t in_shard) const {
  for (const ExtentCopy& piece : pieces[index(tensor)])
    if (piece.source().contains(in_shard))
      return place_of(tensor, piece) + in_shard - piece.from;
  CANZONA_CHECK(false, "element ", in_shard, " of tensor ", tensor,
                " is not kept");
  return -1;
}

FlatLayout lay_out_slices(const PlanPart& plan, const Coordinates& place,
                          Resting what) {
  return FlatLayoutMaker(plan, place, what).make();
}

RankLayout lay_out_rank(const PlanPart& plan, const Coordinates& place) {
  return {lay_out_slices(plan, place, Resting::kParameters),
          lay_out_slices(plan, place, Resting::kGradients)};
}

}  // namespace canzona
