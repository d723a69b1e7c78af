#include "canzona/rules/soap/layout.h"

#include "canzona/base/error.h"

namespace canzona {
namespace {

AxisSizes sizes_of(std::span<const int64_t> dims) {
  AxisSizes sizes(dims);
  for (int64_t d : dims)
    if (d < 0) throw UsageError("negative side");
  if (dims.empty()) sizes.push_back(1);
  return sizes;
}

// From the first dim on, neighbours are joined while their product is allowed.
// Dims of one vanish.
AxisSizes merged(const AxisSizes& sizes, int64_t max_dim) {
  AxisSizes merged;
  int64_t joined = 1;
  for (int64_t next : sizes.span()) {
    if (joined <= max_dim / next) {
      joined *= next;
    } else if (joined > 1) {
      merged.push_back(joined);
      joined = next;
    } else {
      merged.push_back(next);
    }
  }
  if (joined > 1 || merged.order() == 0) merged.push_back(joined);
  return merged;
}

// A vector has no factor unless it is asked for, a long side has one only if it
// is cut, and a side that is to be ignored has none.
FactorLayout factors_of(const SoapOptions& options,
                        std::span<const int64_t> dims, int first_state) {
  AxisSizes sizes = sizes_of(dims);
  const bool is_vector = sizes.order() == 1;
  const bool is_empty = sizes.has_zero();
  if (options.merges_dims && !is_vector && !is_empty)
    sizes = merged(sizes, options.max_dim);
  const bool wanted = !is_empty && (!is_vector || options.precondition_1d);
  const bool cuts = wanted && options.cuts_long_sides;
  FactorLayout::States states;
  states.states_per_kind = options.keeps_eigenvalues() ? 3 : 2;
  states.first_state = first_state;
  for (int axis = 0; axis < sizes.order(); ++axis) {
    const auto at = static_cast<size_t>(axis);
    const bool ignored = sizes.order() > 1 && options.ignored_axes[at];
    states.axes[at] =
        wanted && !ignored && (cuts || sizes[axis] <= options.max_dim);
  }
  return {Blocking(sizes, cuts ? options.max_dim : Blocking::kUncut), states};
}

}  // namespace

SoapLayout::SoapLayout(const SoapOptions& options,
                       std::span<const int64_t> dims)
    : exp_avg_sq_(options.has_first_moment() ? 1 : 0),
      factors_(factors_of(options, dims, exp_avg_sq_ + 1)),
      refresh_failures_(factors_.end_state() +
                        (options.has_grafting_moment() ? 1 : 0)) {}

}  // namespace canzona
