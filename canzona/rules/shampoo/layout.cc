#include "canzona/rules/shampoo/layout.h"

#include <algorithm>

#include "canzona/base/text.h"

namespace canzona {

AxisSizes merge_sizes(std::span<const int64_t> dims,
                      const BlockingOptions& options) {
  static constexpr int64_t kEmpty[] = {0};
  static constexpr int64_t kOne[] = {1};
  if (std::find(dims.begin(), dims.end(), 0) != dims.end())
    return AxisSizes(kEmpty);
  if (dims.empty()) return AxisSizes(kOne);
  if (options.merge == 0) return AxisSizes(dims);
  auto remain = std::count_if(dims.begin(), dims.end(),
                              [](int64_t size) { return size != 1; });
  AxisSizes merged;
  int64_t running = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] == 1) continue;
    if (running == 1) {
      running = dims[i];
    } else if (remain > options.merge && running <= options.max_dim / dims[i]) {
      running *= dims[i];
      --remain;
    } else {
      merged.push_back(running);
      running = dims[i];
    }
  }
  merged.push_back(running);
  merged.reverse();
  return merged;
}

namespace {

std::string factor_name(int axis, int order) {
  if (order > 2) return cat("F_", axis);
  return axis == 0 ? "L" : "R";
}

FactorLayout factors_of(const ShampooOptions& options,
                        std::span<const int64_t> dims, int first_state) {
  const Blocking blocking(merge_sizes(dims, options.blocking),
                          options.blocking.max_dim);
  FactorLayout::States states;
  for (int axis = 0; axis < blocking.order(); ++axis)
    states.axes[static_cast<size_t>(axis)] =
        options.has_factor(blocking.order(), axis);
  states.states_per_kind = 2;  // factor and inverse root
  states.first_state = first_state;
  return {blocking, states};
}

}  // namespace

ShampooLayout::ShampooLayout(const ShampooOptions& options,
                             std::span<const int64_t> dims)
    : filtered_grad_(options.filters() ? 0 : kNone),
      grafting_(options.grafts_from_moment() ? filtered_grad_ + 1 : kNone),
      factors_(
          factors_of(options, dims, std::max(filtered_grad_, grafting_) + 1)),
      has_momentum_(options.has_momentum()) {}

int ShampooLayout::refresh_failures() const {
  return num_factors() > 0 ? factors_.end_state() : kNone;
}

int ShampooLayout::momentum() const {
  if (!has_momentum_) return kNone;
  return std::max(factors_.end_state(), refresh_failures() + 1);
}

std::vector<StateFact> ShampooLayout::states(
    std::span<const int64_t> dims) const {
  const std::vector<int64_t> whole(dims.begin(), dims.end());
  std::vector<StateFact> states;
  if (filtered_grad_ != kNone)
    states.push_back(owned_state("filtered_grad", whole));
  if (grafting_ != kNone)
    states.push_back(owned_state("grafting_avg_sq", whole));
  for (int axis = 0; axis < blocking().order(); ++axis) {
    if (!has_factor(axis)) continue;
    const std::string name = factor_name(axis, blocking().order());
    std::string suffix;
    for (const auto& [count, d] : blocking().side(axis).kinds()) {
      const std::vector<int64_t> stack = {
          checked_mul(count, blocking().blocks_across(axis), "blocks"), d, d};
      states.push_back(owned_state(cat(name, suffix), stack));
      states.push_back(
          owned_state(cat("inv_", name, suffix), stack, Initially::kIdentity));
      suffix = "_edge";
    }
  }
  if (refresh_failures() != kNone)
    states.push_back(owned_state("refresh_failures",
                                 {blocking().num_blocks(), num_factors()}));
  if (has_momentum_)
    states.push_back({"momentum", whole, "fp32", Lives::kWithShard});
  return states;
}

}  // namespace canzona
