#include "canzona/runtime/gradient_check.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "canzona/base/check.h"
#include "canzona/runtime/index.h"

namespace canzona {
namespace {

constexpr uint32_t kInfinityBits = 0x7F800000;

// One number for all ranks, the largest of theirs: bits of the largest
// magnitude, or, above all of those, where something was not finite. A rank's
// own gradient is better to know than a sum.
constexpr int64_t kInSum = int64_t{1} << 61;
constexpr int64_t kInOwn = int64_t{1} << 62;
int64_t place_code(int64_t kind, int32_t rank, int32_t tensor) {
  return kind | (int64_t{rank} << 32) | tensor;
}

template <class Number>
std::span<std::byte> bytes_of_number(Number& number) {
  return {reinterpret_cast<std::byte*>(&number), sizeof(number)};
}

Extent meet(const Extent& a, const Extent& b) {
  const int64_t first = std::max(a.first, b.first);
  return {first, std::max<int64_t>(0, std::min(a.end(), b.end()) - first)};
}

}  // namespace

GradientCheck::GradientCheck(Rank& rank) : rank_(rank) {
  add_scaled();
  for (const KeptMatrix& matrix : rank.kept.matrices)
    for (const Piece& piece : matrix.pieces)
      add_counted(rank.tensor_of(matrix), {piece.gradient, piece.count});
  for (const KeptElements& elements : rank.kept.elements)
    add_counted(elements.tensor, {elements.gradient, elements.count});
  find_uncounted();
}

// What every home keeps is counted in even slices, what every tp rank keeps by
// the first of them.
void GradientCheck::add_counted(int32_t tensor, Extent extent) {
  if (!rank_.counts_shard(tensor)) return;
  if (rank_.plan.traffic == Traffic::kAllReduce) {
    const FlatLayout& layout = rank_.layout.gradients;
    const RankBucket& bucket =
        layout.buckets[index(layout.tensors[index(tensor)].bucket)];
    const int64_t homes = rank_.plan.buffer_of(tensor).num_homes;
    const int64_t begin = bucket.all.count * bucket.home / homes;
    const int64_t end = bucket.all.count * (bucket.home + 1) / homes;
    extent = meet(extent, {bucket.all.first + begin, end - begin});
  }
  if (extent.count == 0) return;
  float* first = rank_.store.gradients() + extent.first;
  counted_.push_back({const_run(first), extent.count});
  counted_to_scale_.push_back({run_of(first), extent.count});
  counted_tensor_.push_back(tensor);
}

void GradientCheck::add_scaled() {
  const auto add = [&](const Extent& extent) {
    if (extent.count > 0) scaled_.push_back(extent);
  };
  const bool in_runs = rank_.plan.traffic != Traffic::kBroadcast &&
                       !rank_.layout.gradients.staged;
  if (in_runs) {
    for (const RankBucket& bucket : rank_.layout.gradients.buckets) {
      add(bucket.matrices.own);
      add(bucket.elements.own);
    }
    return;
  }
  for (const KeptMatrix& matrix : rank_.kept.matrices)
    for (const Piece& piece : matrix.pieces) add({piece.gradient, piece.count});
  for (const KeptElements& elements : rank_.kept.elements)
    add({elements.gradient, elements.count});
}

// All that is counted is scaled; of the rest, what lies between.
void GradientCheck::find_uncounted() {
  std::vector<Extent> counted;
  for (const Engine::ScaledStretch& s : counted_to_scale_)
    counted.push_back(
        {elements<float>(s.run) - rank_.store.gradients(), s.count});
  std::ranges::sort(counted, {}, &Extent::first);
  int64_t num_met = 0;
  for (const Extent& extent : scaled_) {
    int64_t begin = extent.first;
    const auto add_until = [&](int64_t end) {
      if (end > begin) uncounted_.push_back({begin, end - begin});
    };
    for (const Extent& c : counted) {
      const Extent both = meet(extent, c);
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

void GradientCheck::scale(const std::vector<Extent>& extents, double factor) {
  if (factor == 1) return;
  for (const Extent& extent : extents)
    rank_.engine.scale(run_of(rank_.store.gradients() + extent.first), factor,
                       extent.count);
}

int32_t GradientCheck::first_nonfinite_tensor() {
  for (size_t i = 0; i < counted_.size(); ++i)
    if (rank_.engine.largest_bits({&counted_[i], 1}) >= kInfinityBits)
      return counted_tensor_[i];
  return 0;
}

int64_t GradientCheck::largest(int32_t own_nonfinite, double factor) {
  scale(uncounted_, factor);
  int64_t mine = factor == 1
                     ? rank_.engine.largest_bits(counted_)
                     : rank_.engine.scale_and_look(counted_to_scale_, factor);
  if (mine >= kInfinityBits)
    mine = place_code(kInSum, rank_.world_rank, first_nonfinite_tensor());
  if (own_nonfinite >= 0)
    mine = place_code(kInOwn, rank_.world_rank, own_nonfinite);
  rank_.groups.control().all_reduce(Reduction::kInt64Max, bytes_of_number(mine),
                                    {.label = "largest gradient"});
  return mine;
}

double GradientCheck::norm(uint32_t largest_bits) {
  if (largest_bits == 0) return 0;
  // The largest magnitude becomes one below 2^31, so that a square fits 62
  // bits and 2^64 of them 126.
  const int exponent = 30 - std::ilogb(std::bit_cast<float>(largest_bits));
  const WideSum mine = rank_.engine.sum_of_squares(counted_, exponent);
  uint64_t words[2] = {mine.low, mine.high};
  rank_.groups.replica().all_reduce(Reduction::kInt128Sum,
                                    bytes_of_number(words),
                                    {.label = "norm of the gradient"});
  const double squares = std::ldexp(static_cast<double>(words[1]), 64) +
                         static_cast<double>(words[0]);
  return std::ldexp(std::sqrt(squares), -exponent);
}

void GradientCheck::run(const StepSettings& settings, int32_t own_nonfinite,
                        StepOutcome& outcome) {
  const Span span(rank_.track, "check gradients");
  const int64_t largest =
      this->largest(own_nonfinite, settings.gradient_factor);
  if (largest >= kInSum) {
    outcome.skipped = true;
    outcome.nonfinite_tensor =
        rank_.tensor(static_cast<int32_t>(largest & 0x7FFFFFFF)).name;
    outcome.nonfinite_rank =
        largest >= kInOwn ? static_cast<int>((largest >> 32) & 0xFFFFFF) : -1;
    return;
  }
  if (settings.clip_norm <= 0 && !settings.wants_norm) return;
  outcome.gradient_norm = norm(static_cast<uint32_t>(largest));
  constexpr double kAboveZero = 1e-6;
  if (settings.clip_norm > 0 && outcome.gradient_norm > settings.clip_norm)
    scale(scaled_, settings.clip_norm / (outcome.gradient_norm + kAboveZero));
}

}  // namespace canzona
