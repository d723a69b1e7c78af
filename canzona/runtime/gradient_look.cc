#include "canzona/runtime/gradient_look.h"

namespace canzona {
GradientLook::GradientLook(Rank& rank)
    : rank_(rank),
      planned_(
          checked_gradients(rank.plan, rank.place, rank.layout, rank.kept)) {
  for (const Extent& extent : planned_.counted) {
    float* first = rank.store.gradients() + extent.first;
    counted_.push_back({const_run(first), extent.count});
    counted_to_scale_.push_back({run_of(first), extent.count});
  }
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
      return planned_.tensor[i];
  return 0;
}

uint32_t GradientLook::scale_and_look(double factor) {
  scale(planned_.uncounted, factor);
  return factor == 1 ? rank_.engine.largest_bits(counted_)
                     : rank_.engine.scale_and_look(counted_to_scale_, factor);
}

WideSum GradientLook::sum_of_squares(int exponent) {
  if (rank_.plan.replica_of(rank_.world_rank) != 0) return {};
  return rank_.engine.sum_of_squares(counted_, exponent);
}

}  // namespace canzona
