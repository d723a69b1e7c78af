#include "canzona/rules/soap/facts.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/rules/counting.h"
#include "canzona/rules/options.h"

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

namespace {

using Refresh = SoapOptions::Refresh;
using Sort = SoapOptions::Sort;

// Counts what the factor of a side of length d costs on every step, e being the
// product of the other sides: rotating the gradient (2d²e) and the update back
// (2d²e), one triangle of the statistics (d²e). A first moment in the original
// space is rotated too, and so is a copy of the gradient for the KL factor of
// the other side.
Flops side_flops(const SoapOptions& soap, int64_t d, int64_t e) {
  int64_t products = 5;
  if (soap.has_first_moment() && !soap.moment_in_basis) products += 2;
  if (soap.kl) products += 2;
  return products * cubic(d, d, e);
}

// In thirds of d³: a product takes 6, Householder QR with Q formed 4 + 4, three
// rounds of Cholesky QR 3·(3 + 1 + 3), eigh about 27. Estimates of eigenvalues
// come with the product of the next step; only those after the last step need
// one of their own.
int64_t refresh_thirds(const SoapOptions& soap) {
  if (soap.refresh == Refresh::kEigh) return 27;
  const int64_t qr = soap.refresh == Refresh::kQr ? 8 : 21;
  const bool estimates_after = soap.sort != Sort::kBefore || soap.kl;
  return soap.power_steps * (6 + qr) + (estimates_after ? 6 : 0);
}

// A new basis, rounded to the nearest flop, and the first moment moved to it:
// out of the old one and into the new (4d²e), or by the product of both (2d³ +
// 2d²e), whichever is less.
Flops refresh_flops(const SoapOptions& soap, int64_t d, int64_t e) {
  const Flops thirds = refresh_thirds(soap) * cubic(d, d, d) + Flops(1);
  Flops flops(thirds.value() / 3);
  if (soap.has_first_moment() && soap.moment_in_basis)
    flops += 2 * cubic(d, d, e) + 2 * cubic(d, d, std::min(d, e));
  return flops;
}

// Counts the work of `count` blocks of these sides.
RuleWork blocks_work(const SoapOptions& soap, int64_t count,
                     std::span<const int64_t> sides,
                     std::span<const bool> has_factor) {
  RuleWork work;
  for (size_t i = 0; i < sides.size(); ++i) {
    if (!has_factor[i]) continue;
    const int64_t other = sides.size() == 2 ? sides[1 - i] : 1;
    work.every_step += count * side_flops(soap, sides[i], other);
    work.refresh += count * refresh_flops(soap, sides[i], other);
  }
  return work;
}

// An element without factors costs this: what is left of the rule is Adam.
constexpr int64_t kAdamFlops = 14;

RuleWork layout_work(const SoapOptions& soap, const SoapLayout& layout) {
  const FactorLayout& factors = layout.factors();
  const Blocking& blocking = layout.blocking();
  const bool is_matrix = blocking.order() == 2;
  const BlockedSide one(1, 1);
  const bool has_factor[] = {factors.has_factor(0),
                             is_matrix && factors.has_factor(1)};
  RuleWork work;
  for (const auto& [num_rows, rows] : blocking.side(0).kinds()) {
    for (const auto& [num_cols, cols] :
         (is_matrix ? blocking.side(1) : one).kinds()) {
      const int64_t sides[] = {rows, cols};
      const int64_t count = checked_mul(num_rows, num_cols, "blocks");
      if (factors.num_factors() == 0)
        work.every_step += count * (kAdamFlops * cubic(rows, cols, 1));
      const RuleWork more = blocks_work(soap, count, sides, has_factor);
      work.every_step += more.every_step;
      work.refresh += more.refresh;
    }
  }
  return work;
}

// The states of an axis's factors of one length.
void add_factors(std::vector<StateFact>& states, const SoapOptions& soap,
                 const Blocking& blocking, int axis, size_t kind) {
  const int64_t d = blocking.side(axis).kinds()[kind].length;
  const bool lettered = blocking.order() <= 2;
  const std::string side =
      lettered ? (axis == 0 ? "L" : "R") : std::to_string(axis);
  const std::string end = kind > 0 ? "_edge" : "";
  std::vector<int64_t> square = {d, d};
  std::vector<int64_t> row = {d};
  if (soap.cuts_long_sides) {
    square.insert(square.begin(), blocking.stack_size(axis, kind));
    row.insert(row.begin(), square.front());
  }
  states.push_back(owned_state(cat(lettered ? "" : "F_", side, end), square));
  states.push_back(
      owned_state(cat("Q_", side, end), square, Initially::kIdentity));
  if (soap.keeps_eigenvalues())
    states.push_back(owned_state(cat("eigenvalues_", side, end), row));
}

std::vector<StateFact> layout_states(const SoapOptions& soap,
                                     const std::vector<int64_t>& dims) {
  const SoapLayout layout(soap, dims);
  std::vector<StateFact> states;
  if (soap.has_first_moment()) states.push_back(owned_state("exp_avg", dims));
  states.push_back(owned_state("exp_avg_sq", dims));
  const Blocking& blocking = layout.blocking();
  for (int axis = 0; axis < blocking.order(); ++axis) {
    if (!layout.factors().has_factor(axis)) continue;
    for (size_t kind = 0; kind < blocking.side(axis).kinds().size(); ++kind)
      add_factors(states, soap, blocking, axis, kind);
  }
  if (soap.has_grafting_moment())
    states.push_back(owned_state("grafting_avg_sq", dims));
  if (layout.factors().num_factors() > 0)
    states.push_back(
        owned_state("refresh_failures", {layout.factors().num_counters()}));
  return states;
}

}  // namespace

SoapFacts::SoapFacts(const RuleOptions& given)
    : in_force_(soap_options_in_force(given)),
      soap_(read_soap_options(in_force_)) {}

std::vector<StateFact> SoapFacts::states(MatrixShape shape) const {
  return states_for("soap", shape, [&] {
    return layout_states(soap_, {shape.rows, shape.cols});
  });
}

std::vector<StateFact> SoapFacts::tensor_states(
    const std::vector<int64_t>& dims) const {
  try {
    return layout_states(soap_, dims);
  } catch (const UsageError& error) {
    std::vector<std::string> sides;
    for (int64_t d : dims) sides.push_back(std::to_string(d));
    throw UsageError(
        cat("rule soap, tensor ", join(sides, "x"), ": ", error.what()));
  }
}

RuleWork SoapFacts::work(MatrixShape shape) const {
  return count_for("soap", shape, [&] {
    const int64_t dims[] = {shape.rows, shape.cols};
    return layout_work(soap_, SoapLayout(soap_, dims));
  });
}

MatrixShape SoapFacts::block(MatrixShape shape) const {
  if (soap_.normalizes_update || soap_.max_update_rms > 0) return shape;
  const auto factors_of = [&](MatrixShape sides) {
    const int64_t dims[] = {sides.rows, sides.cols};
    return SoapLayout(soap_, dims).factors();
  };
  return count_for("soap", shape,
                   [&] { return independent_block(shape, factors_of); });
}

std::vector<BlockState> SoapFacts::block_states(MatrixShape shape,
                                                int64_t number) const {
  const std::vector<int64_t> dims = {shape.rows, shape.cols};
  const SoapLayout layout(soap_, dims);
  const bool counts = layout.factors().num_factors() > 0;
  return states_of_block(layout.factors(), number,
                         counts ? layout.refresh_failures() : -1,
                         layout_states(soap_, dims));
}

std::string SoapFacts::algorithm(MatrixShape shape) const {
  const int64_t dims[] = {shape.rows, shape.cols};
  const bool rotates = SoapLayout(soap_, dims).factors().num_factors() > 0;
  return rotates ? word_option(in_force_, "refresh") : "adam";
}

RuleEntry soap_entry() {
  return {"soap", "Adam in the eigenbasis of the row and column statistics",
          soap_option_facts(), soap_presets(), make_facts<SoapFacts>};
}

}  // namespace canzona
