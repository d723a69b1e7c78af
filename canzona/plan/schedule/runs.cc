#include "canzona/plan/schedule/runs.h"

#include <algorithm>
#include <numeric>

#include "canzona/base/units.h"

namespace canzona {
namespace {

int64_t sum_of_slices(const PlanPart& part, const Bucket& bucket, int32_t slice,
                      size_t begin, size_t end) {
  int64_t sum = 0;
  for (size_t i = begin; i < end; ++i) {
    const auto t = static_cast<size_t>(bucket.tensors[i]);
    const Tensor& tensor = part.model.tensors[t];
    if (!tensor.frozen) sum += slice_elements(part.grid, tensor, slice);
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
  for (int32_t i = 0; i < bucket.num_matrix_tensors; ++i) {
    const auto t = static_cast<size_t>(bucket.tensors[static_cast<size_t>(i)]);
    runs[static_cast<size_t>(part.home[t])] +=
        slice_elements(part.grid, part.model.tensors[t], slice);
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

// All slices of a tensor at once, as slice_elements() counts them.
void add_slices(const Mesh& grid, const Tensor& tensor,
                std::vector<int64_t>& sums) {
  const int64_t rows = shard_rows(grid, tensor);
  const int64_t cols = shard_cols(grid, tensor);
  int64_t first = 0;
  for (size_t slice = 0; slice < sums.size(); ++slice) {
    const int64_t end = rows * static_cast<int64_t>(slice + 1) / grid.places;
    sums[slice] += (end - first) * cols;
    first = end;
  }
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

}  // namespace canzona
