#include "canzona/runtime/gradient_look.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/index.h"

namespace canzona {
GradientLook::GradientLook(Rank& rank) : rank_(rank) {
  add_scaled();
  for (const KeptMatrix& matrix : rank.kept.matrices)
    for (const Piece& piece : matrix.pieces)
      add_counted(rank.tensor_of(matrix), {piece.gradient, piece.elements()});
  for (const KeptElements& elements : rank.kept.elements)
    add_counted(elements.tensor, {elements.gradient, elements.in_shard.count});
  find_uncounted();
}

// What every home keeps is counted in even slices, what every tp rank keeps by
// the first of them.
void GradientLook::add_counted(int32_t tensor, Extent extent) {
  if (!rank_.counts_shard(tensor)) return;
  if (rank_.plan.traffic == Traffic::kAllReduce) {
    const FlatLayout& layout = rank_.layout.gradients;
    const RankBucket& bucket =
        layout.buckets[index(layout.tensors[index(tensor)].bucket)];
    const int64_t homes = rank_.plan.buffer_of(tensor).num_homes;
    const int64_t begin = bucket.all.count * bucket.home / homes;
    const int64_t end = bucket.all.count * (bucket.home + 1) / homes;
    extent = extent.meet({bucket.all.first + begin, end - begin});
  }
  if (extent.count == 0) return;
  float* first = rank_.store.gradients() + extent.first;
  counted_.push_back({const_run(first), extent.count});
  counted_to_scale_.push_back({run_of(first), extent.count});
  counted_tensor_.push_back(tensor);
}

void GradientLook::add_scaled() {
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
    for (const Piece& piece : matrix.pieces)
      add({piece.gradient, piece.elements()});
  for (const KeptElements& elements : rank_.kept.elements)
    add({elements.gradient, elements.in_shard.count});
}

// All that is counted is scaled; of the rest, what lies between.
void GradientLook::find_uncounted() {
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
      const Extent both = extent.meet(c);
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

void GradientLook::scale(const std::vector<Extent>& extents, double factor) {
  if (factor == 1) return;
  for (const Extent& extent : extents)
    rank_.engine.scale(run_of(rank_.store.gradients() + extent.first), factor,
                       extent.count);
}

int32_t GradientLook::first_nonfinite_tensor() {
  for (size_t i = 0; i < counted_.size(); ++i)
    if (rank_.engine.largest_bits({&counted_[i], 1}) >= kInfinityBits)
      return counted_tensor_[i];
  return 0;
}

uint32_t GradientLook::scale_and_look(double factor) {
  scale(uncounted_, factor);
  return factor == 1 ? rank_.engine.largest_bits(counted_)
                     : rank_.engine.scale_and_look(counted_to_scale_, factor);
}

WideSum GradientLook::sum_of_squares(int exponent) {
  if (rank_.plan.replica_of(rank_.world_rank) != 0) return {};
  return rank_.engine.sum_of_squares(counted_, exponent);
}

}  // namespace canzona
