#include "canzona/plan/schedule/rank_layout.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/units.h"
#include "canzona/plan/schedule/slices.h"

namespace canzona {
using namespace plan;
namespace {

// slice_elements() of many tensors, most of which have one of a few shapes.
class SliceElements {
 public:
  SliceElements(const Mesh& grid, int32_t slice) : grid_(grid), slice_(slice) {}

  int64_t of(const Tensor& tensor) {
    const int64_t rows = tensor.rows(), cols = tensor.cols();
    for (const Known& known : known_)
      if (known.rows == rows && known.cols == cols && known.cut == tensor.cut)
        return known.elements;
    Known& next = known_[next_++ % known_.size()];
    next = {rows, cols, tensor.cut, slice_elements(grid_, tensor, slice_)};
    return next.elements;
  }

 private:
  struct Known {
    int64_t rows = -1, cols = -1;
    Cut cut = Cut::kNone;
    int64_t elements = 0;
  };

  const Mesh& grid_;
  int32_t slice_;
  std::array<Known, 4> known_;
  size_t next_ = 0;
};

int64_t sum_of_slices(const PlanPart& part, const Bucket& bucket, int32_t slice,
                      size_t begin, size_t end) {
  SliceElements elements(part.grid, slice);
  int64_t sum = 0;
  for (size_t i = begin; i < end; ++i) {
    const auto t = static_cast<size_t>(bucket.tensors[i]);
    const Tensor& tensor = part.model.tensors[t];
    if (!tensor.frozen) sum += elements.of(tensor);
  }
  return sum;
}

size_t num_homes(const PlanPart& part, const Bucket& bucket) {
  return static_cast<size_t>(
      part.buffers[static_cast<size_t>(bucket.buffer)].num_homes);
}

}  // namespace

int64_t matrix_slice(const PlanPart& part, const Bucket& bucket,
                     int32_t slice) {
  return sum_of_slices(part, bucket, slice, 0,
                       static_cast<size_t>(bucket.num_matrix_tensors));
}

int64_t adamw_slice(const PlanPart& part, const Bucket& bucket, int32_t slice) {
  return sum_of_slices(part, bucket, slice,
                       static_cast<size_t>(bucket.num_matrix_tensors),
                       bucket.tensors.size());
}

std::vector<int64_t> matrix_runs(const PlanPart& part, const Bucket& bucket,
                                 int32_t slice) {
  if (part.traffic == Traffic::kAllReduce)
    return std::vector<int64_t>(num_homes(part, bucket),
                                matrix_slice(part, bucket, slice));
  std::vector<int64_t> runs(num_homes(part, bucket), 0);
  SliceElements elements(part.grid, slice);
  for (int32_t i = 0; i < bucket.num_matrix_tensors; ++i) {
    const auto t = static_cast<size_t>(bucket.tensors[static_cast<size_t>(i)]);
    runs[static_cast<size_t>(part.home[t])] +=
        elements.of(part.model.tensors[t]);
  }
  if (part.traffic == Traffic::kPadded)
    std::ranges::fill(runs, std::ranges::max(runs));
  return runs;
}

std::vector<int64_t> adamw_slice_cuts(const PlanPart& part,
                                      const Bucket& bucket, int32_t slice) {
  std::vector<int64_t> cuts;
  const int64_t own = adamw_slice(part, bucket, slice);
  for (int64_t cut : bucket.adamw_cuts) {
    const int64_t whole = std::max<int64_t>(bucket.adamw_cuts.back(), 1);
    cuts.push_back(
        static_cast<int64_t>(static_cast<Int128>(own) * cut / whole));
  }
  return cuts;
}

std::vector<int64_t> adamw_runs(const PlanPart& part, const Bucket& bucket,
                                int32_t slice) {
  if (bucket.adamw_cuts.empty())
    return std::vector<int64_t>(num_homes(part, bucket),
                                adamw_slice(part, bucket, slice));
  const std::vector<int64_t> cuts = adamw_slice_cuts(part, bucket, slice);
  std::vector<int64_t> runs;
  for (size_t h = 1; h < cuts.size(); ++h)
    runs.push_back(cuts[h] - cuts[h - 1]);
  return runs;
}

bool lie_alike(const PlanPart& part) {
  const ZeroSizes& zero = part.options.zero.sizes;
  return zero.z2 == zero.z3 &&
         std::ranges::none_of(part.model.tensors, &Tensor::frozen);
}

Extent kept_slices(const Mesh& grid, int32_t place, int32_t z) {
  const int32_t count = grid.places / z;
  if (count == 1) return {grid.slice_of(place), 1};
  return {place % z * count, count};
}

namespace {

// Adds the elements of all slices of a tensor at once; must agree with
// slice_elements().
void add_slices(const Mesh& grid, const Tensor& tensor,
                std::vector<int64_t>& sums) {
  const int64_t rows = shard_rows(grid, tensor);
  const int64_t cols = shard_cols(grid, tensor);
  each_slice(rows, grid.places, [&](int32_t slice, int64_t own) {
    sums[static_cast<size_t>(slice)] += own * cols;
  });
}

// Returns the elements of every slice, padding included.
std::vector<int64_t> padded_slices(const PlanPart& part, const Bucket& bucket,
                                   Resting what) {
  std::vector<int64_t> sums(static_cast<size_t>(part.grid.places), 0);
  for (int32_t t : bucket.tensors) {
    const Tensor& tensor = part.model.tensors[static_cast<size_t>(t)];
    if (!tensor.frozen || what == Resting::kParameters)
      add_slices(part.grid, tensor, sums);
  }
  if (part.traffic != Traffic::kPadded) return sums;
  for (int32_t s = 0; s < part.grid.places; ++s) {
    const std::vector<int64_t> runs = matrix_runs(part, bucket, s);
    sums[static_cast<size_t>(s)] +=
        std::reduce(runs.begin(), runs.end()) - matrix_slice(part, bucket, s);
  }
  return sums;
}

int64_t whole_tensors(const PlanPart& part, const Bucket& bucket,
                      Resting what) {
  int64_t sum = 0;
  for (int32_t t : bucket.tensors) {
    const Tensor& tensor = part.model.tensors[static_cast<size_t>(t)];
    if (!tensor.frozen || what == Resting::kParameters)
      sum += shard_elements(part.grid, tensor);
  }
  return sum;
}

}  // namespace

std::vector<int64_t> kept_elements(const PlanPart& part, const Bucket& bucket,
                                   Resting what) {
  const ZeroSizes& zero = part.options.zero.sizes;
  const int32_t z = what == Resting::kParameters ? zero.z3 : zero.z2;
  const auto places = static_cast<size_t>(part.grid.places);
  if (z == 1 && places > 1)
    return std::vector<int64_t>(places, whole_tensors(part, bucket, what));
  const std::vector<int64_t> slices = padded_slices(part, bucket, what);
  std::vector<int64_t> kept;
  for (int32_t place = 0; place < part.grid.places; ++place) {
    const Extent range = kept_slices(part.grid, place, z);
    kept.push_back(std::reduce(slices.begin() + range.first,
                               slices.begin() + range.end()));
  }
  return kept;
}

int64_t message_elements(const PlanPart& part, const Bucket& bucket,
                         Resting what) {
  if (part.traffic != Traffic::kPadded)
    return whole_tensors(part, bucket, what);
  const std::vector<int64_t> slices = padded_slices(part, bucket, what);
  return std::reduce(slices.begin(), slices.end());
}

int64_t forgotten_elements(const PlanPart& part, int32_t stage) {
  int64_t most = 0;
  for (const Tensor& tensor : part.model.tensors)
    if (tensor.frozen && stage_of(part.grid, part.model, tensor) == stage)
      most = std::max(most, shard_elements(part.grid, tensor));
  return most;
}

// The runs of one region in the order of the exchange: home by home, in each
// slice by slice.
struct BucketPlacer::Runs {
  std::vector<int64_t> counts;
  std::vector<int64_t> firsts;
  int64_t count = 0;

  void add(int64_t elements) {
    firsts.push_back(count);
    counts.push_back(elements);
    count += elements;
  }
};

// The position up to which a slice of the concatenated AdamW tensors has been
// placed.
struct BucketPlacer::Walk {
  size_t number;      // of the tensor in the bucket
  int64_t begin = 0;  // of that tensor in the slice
  int64_t done = 0;   // elements of the slice
};

BucketPlacer::BucketPlacer(const PlanPart& plan, const Coordinates& at,
                           Resting what)
    : plan_(plan), at_(at), what_(what) {
  const ZeroSizes& zero = plan.options.zero.sizes;
  slices_ = kept_slices(plan.grid, at.place,
                        what == Resting::kParameters ? zero.z3 : zero.z2);
  own_slice_ = plan.grid.slice_of(at.place) - slice(0);
}

RankBucket BucketPlacer::place(int32_t bucket, int64_t first) {
  bucket_ = &plan_.buckets[index(bucket)];
  pieces_.clear();
  const Buffer& buffer = plan_.buffers[index(bucket_->buffer)];
  RankBucket mine;
  mine.bucket = bucket;
  mine.of_experts = buffer.ep >= 0;
  mine.home = at_.home_in(buffer);
  mine.matrices = place_matrices(first, mine.home);
  mine.elements = place_elements(mine.matrices.all.end(), mine.home);
  const int64_t end = place_frozen(mine.elements.all.end());
  mine.all = {first, end - first};
  sort_and_join();
  return mine;
}

const Tensor& BucketPlacer::tensor(int32_t number) const {
  return plan_.model.tensors[index(bucket_->tensors[index(number)])];
}

// Returns slice `i` of a tensor as an extent of its shard.
Extent BucketPlacer::in_shard(int32_t number, int32_t i) const {
  const Extent rows = slice_rows(plan_.grid, tensor(number), slice(i));
  const int64_t cols = shard_cols(plan_.grid, tensor(number));
  return {rows.first * cols, rows.count * cols};
}

// `of_homes(i)` returns each home's count of slice `i`.
template <class OfHomes>
BucketPlacer::Runs BucketPlacer::runs_of(const OfHomes& of_homes) const {
  std::vector<std::vector<int64_t>> by_slice;
  for (int32_t i = 0; i < slices_.count; ++i) by_slice.push_back(of_homes(i));
  Runs runs;
  for (size_t h = 0; h < by_slice[0].size(); ++h)
    for (const std::vector<int64_t>& counts : by_slice) runs.add(counts[h]);
  return runs;
}

Region BucketPlacer::region_of(int64_t first, const Runs& runs, bool shared,
                               int32_t home) const {
  Region region{{first, runs.count}, {first, runs.count}};
  if (shared) return region;
  const size_t own = index(home * slices_.count + own_slice_);
  region.own = {first + runs.firsts[own], runs.counts[own]};
  return region;
}

// If the bucket is not divided among homes, all slices of all tensors lie one
// after another.
Region BucketPlacer::place_matrices(int64_t first, int32_t home) {
  const bool shared = bucket_->cuts.empty();
  const Runs runs = runs_of([&](int32_t i) {
    return shared
               ? std::vector<int64_t>{matrix_slice(plan_, *bucket_, slice(i))}
               : matrix_runs(plan_, *bucket_, slice(i));
  });
  for (int32_t i = 0; i < slices_.count; ++i)
    put_matrices(i, first, shared, runs);
  return region_of(first, runs, shared, home);
}

// Places slice `i` of every tensor in the run of its home.
void BucketPlacer::put_matrices(int32_t i, int64_t first, bool shared,
                                const Runs& runs) {
  std::vector<int64_t> next;  // by home
  for (size_t run = index(i); run < runs.firsts.size();
       run += index(slices_.count))
    next.push_back(first + runs.firsts[run]);
  for (int32_t n = 0; n < bucket_->num_matrix_tensors; ++n) {
    const int32_t home =
        shared ? 0 : plan_.home[index(bucket_->tensors[index(n)])];
    const Extent own = in_shard(n, i);
    int64_t& at = next[index(home)];
    put(n, {own.first, at, own.count});
    at += own.count;
  }
}

Region BucketPlacer::place_elements(int64_t first, int32_t home) {
  const bool shared = bucket_->adamw_cuts.empty();
  const Runs runs = runs_of([&](int32_t i) {
    return shared ? std::vector<int64_t>{adamw_slice(plan_, *bucket_, slice(i))}
                  : adamw_runs(plan_, *bucket_, slice(i));
  });
  std::vector<Walk> walks(index(slices_.count),
                          Walk{index(bucket_->num_matrix_tensors)});
  for (size_t run = 0; run < runs.counts.size(); ++run) {
    const size_t i = run % walks.size();
    put_elements(static_cast<int32_t>(i), walks[i], first + runs.firsts[run],
                 runs.counts[run]);
  }
  return region_of(first, runs, shared, home);
}

// Places the next `count` elements of slice `i`.
void BucketPlacer::put_elements(int32_t i, Walk& walk, int64_t at,
                                int64_t count) {
  const Extent cut{walk.done, count};
  for (; walk.number < bucket_->tensors.size(); ++walk.number) {
    const auto n = static_cast<int32_t>(walk.number);
    if (tensor(n).frozen) continue;
    const Extent kept = in_shard(n, i);
    const Extent all{walk.begin, kept.count};
    const Extent own = all.meet(cut);
    put(n, {kept.first + own.first - all.first, at + own.first - cut.first,
            own.count});
    if (all.end() > cut.end()) break;
    walk.begin = all.end();
  }
  walk.done = cut.end();
}

// Places frozen tensors from `at` on; returns the end.
int64_t BucketPlacer::place_frozen(int64_t at) {
  if (what_ == Resting::kGradients) return at;
  for (int32_t i = 0; i < slices_.count; ++i)
    for (int32_t n = 0; n < std::ssize(bucket_->tensors); ++n) {
      if (!tensor(n).frozen) continue;
      const Extent own = in_shard(n, i);
      put(n, {own.first, at, own.count});
      at += own.count;
    }
  return at;
}

void BucketPlacer::put(int32_t number, const ExtentCopy& piece) {
  if (piece.count > 0) pieces_.push_back({number, piece});
}

// A piece that continues the tensor's piece before is joined to it.
void BucketPlacer::sort_and_join() {
  if (!std::ranges::is_sorted(pieces_, {}, &TensorPiece::number))
    std::ranges::stable_sort(pieces_, {}, &TensorPiece::number);
  size_t num_joined = 0;
  for (const TensorPiece& next : pieces_) {
    TensorPiece* last = num_joined > 0 ? &pieces_[num_joined - 1] : nullptr;
    if (last != nullptr && last->number == next.number &&
        last->piece.is_continued_by(next.piece))
      last->piece.count += next.piece.count;
    else
      pieces_[num_joined++] = next;
  }
  pieces_.resize(num_joined);
}

void PiecesByTensor::add(int32_t tensor, const ExtentCopy& piece) {
  Extent& run = runs_[index(tensor)];
  if (run.count == 0) run.first = std::ssize(pieces_);
  CANZONA_CHECK_EQ(run.end(), std::ssize(pieces_), "pieces of tensor ", tensor);
  pieces_.push_back(piece);
  ++run.count;
}

namespace {

class FlatLayoutMaker {
 public:
  FlatLayoutMaker(const PlanPart& plan, const Coordinates& at, Resting what)
      : plan_(plan), at_(at), what_(what), placer_(plan, at, what) {
    out_.slices = placer_.slices();
    out_.whole = out_.slices.count == plan.grid.places;
    out_.staged = out_.whole && plan.grid.places > 1;
    out_.tensors.resize(plan.model.tensors.size());
    out_.pieces = PiecesByTensor(plan.model.tensors.size());
  }

  FlatLayout make() {
    for (size_t b = 0; b < plan_.buckets.size(); ++b)
      if (at_.holds(plan_.buffers[index(plan_.buckets[b].buffer)]))
        add(static_cast<int32_t>(b));
    if (what_ == Resting::kGradients) {
      out_.forgotten = out_.num_elements;
      out_.num_elements += forgotten_elements(plan_, at_.stage);
    }
    return std::move(out_);
  }

 private:
  void add(int32_t number) {
    RankBucket mine =
        placer_.place(number, out_.staged ? 0 : out_.num_elements);
    const std::vector<int32_t>& tensors = plan_.buckets[index(number)].tensors;
    for (const auto& [n, piece] : placer_.pieces())
      out_.pieces.add(tensors[index(n)], piece);
    for (int32_t t : tensors) note_place(t);
    if (!out_.staged) out_.num_elements = mine.all.end();
    out_.buckets.push_back(std::move(mine));
  }

  void note_place(int32_t t) {
    const Tensor& tensor = plan_.model.tensors[index(t)];
    FlatLayout::Shard& shard = out_.tensors[index(t)];
    shard.bucket = static_cast<int32_t>(out_.buckets.size());
    if (tensor.frozen && what_ == Resting::kGradients) return;
    shard.count = shard_elements(plan_.grid, tensor);
    if (out_.staged) {
      shard.first = out_.num_elements;
      out_.num_elements += shard.count;
    } else if (!out_.pieces[index(t)].empty()) {
      shard.first = out_.pieces[index(t)][0].to;
    }
  }

  const PlanPart& plan_;
  const Coordinates& at_;
  Resting what_;
  BucketPlacer placer_;
  FlatLayout out_;
};

}  // namespace

int64_t FlatLayout::offset_of(int32_t tensor, int64_t in_shard) const {
  for (const ExtentCopy& piece : pieces[index(tensor)])
    if (piece.source().contains(in_shard))
      return offset_of(tensor, piece) + in_shard - piece.from;
  CANZONA_CHECK(false, "element ", in_shard, " of tensor ", tensor,
                " is not kept");
  return -1;
}

RankLayout lay_out_rank(const PlanPart& plan, const Coordinates& at) {
  RankLayout out;
  out.parameters = FlatLayoutMaker(plan, at, Resting::kParameters).make();
  if (lie_alike(plan)) {
    out.gradients = out.parameters;
    out.gradients.forgotten = out.gradients.num_elements;
  } else {
    out.gradients = FlatLayoutMaker(plan, at, Resting::kGradients).make();
  }
  return out;
}

}  // namespace canzona
