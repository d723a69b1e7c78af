#include "canzona/rules/shampoo/layout.h"

#include "canzona/base/check.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

StateFact at_owner(std::string name, std::vector<int64_t> shape,
                   Initially initially = Initially::kZero) {
  return {std::move(name), std::move(shape), "fp32", Lives::kWithOwner,
          initially};
}

std::string factor_name(int axis, int order) {
  if (order > 2) return cat("F_", axis);
  return axis == 0 ? "L" : "R";
}

constexpr int kStatesPerKind = 2;  // factor and inverse root

}  // namespace

ShampooLayout::ShampooLayout(const ShampooOptions& options,
                             std::span<const int64_t> dims)
    : blocking_(dims, options.blocking),
      num_axes_(options.preconditions() ? blocking_.order() : 0) {
  int next = 0;
  if (options.filters()) filtered_grad_ = next++;
  if (options.grafts_from_moment()) grafting_ = next++;
  for (int axis = 0; axis < num_axes_; ++axis) {
    first_state_[static_cast<size_t>(axis)] = next;
    next +=
        kStatesPerKind * static_cast<int>(blocking_.side(axis).kinds().size());
  }
  if (num_axes_ > 0) refresh_failures_ = next;
}

FactorPlace ShampooLayout::factor(const TensorBlock& block, int axis) const {
  CANZONA_CHECK(axis < num_axes_, "axis ", axis);
  const size_t kind = blocking_.side(axis).kind_of(block.place[axis]);
  FactorPlace place;
  place.factor = first_state_[static_cast<size_t>(axis)] +
                 kStatesPerKind * static_cast<int>(kind);
  place.inv_root = place.factor + 1;
  place.place = blocking_.place_in_kind(block, axis);
  place.stack =
      blocking_.side(axis).kinds()[kind].count * blocking_.blocks_across(axis);
  place.side = block.sizes[axis];
  place.failures = block.number * num_axes_ + axis;
  return place;
}

std::vector<StateFact> ShampooLayout::states(
    std::span<const int64_t> dims) const {
  const std::vector<int64_t> whole(dims.begin(), dims.end());
  std::vector<StateFact> states;
  if (filtered_grad_ != kNone)
    states.push_back(at_owner("filtered_grad", whole));
  if (grafting_ != kNone) states.push_back(at_owner("grafting_avg_sq", whole));
  for (int axis = 0; axis < num_axes_; ++axis) {
    const std::string name = factor_name(axis, num_axes_);
    std::string suffix;
    for (const auto& [count, d] : blocking_.side(axis).kinds()) {
      const std::vector<int64_t> stack = {
          checked_mul(count, blocking_.blocks_across(axis), "blocks"), d, d};
      states.push_back(at_owner(cat(name, suffix), stack));
      states.push_back(
          at_owner(cat("inv_", name, suffix), stack, Initially::kIdentity));
      suffix = "_edge";
    }
  }
  if (refresh_failures_ != kNone)
    states.push_back(
        at_owner("refresh_failures", {blocking_.num_blocks(), num_axes_}));
  return states;
}

}  // namespace canzona
