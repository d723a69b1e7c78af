#include "canzona/rules/soap/facts.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/options.h"
#include "canzona/rules/strips.h"

namespace canzona::rules {
namespace {

AxisSizes sizes_of(std::span<const int64_t> dims) {
  AxisSizes sizes(dims);
  for (int64_t d : dims)
    if (d < 0) throw UsageError("a side is negative");
  if (dims.empty()) sizes.push_back(1);
  return sizes;
}

// Joins adjacent dims, from the first on, while their product is allowed. Dims
// of one are dropped.
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

// A vector has a factor only on request, a long side only if it is cut, and an
// ignored axis never.
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

// With strips=auto, factors of at least this side get strips, none of them
// narrower than the least width: what the sum over strips costs a single rank
// is then lost among the products.
constexpr int64_t kStripsFromSide = 1024;
constexpr int64_t kLeastStripWidth = 2048;

int strips_wanted(const SoapOptions& options, int64_t side, int64_t across) {
  if (options.strips != 0) return options.strips;
  if (side < kStripsFromSide) return 1;
  return static_cast<int>(
      std::clamp<int64_t>(across / kLeastStripWidth, 1, kMostStrips));
}

}  // namespace

SoapCut SoapLayout::cut(const SoapOptions& options) const {
  SoapCut cut;
  if (blocking().order() != 2 || blocking().empty() ||
      factors_.num_factors() != 1 || blocking().num_blocks() != 1)
    return cut;
  cut.axis = factors_.has_factor(0) ? 0 : 1;
  const int64_t side = blocking().sizes()[cut.axis];
  const int64_t across = blocking().sizes()[1 - cut.axis];
  // The long side of a square is its columns, as in plans.
  if (across > side || (across == side && cut.axis == 0))
    cut.strips = strips_that_fit(across, strips_wanted(options, side, across));
  return cut;
}

int SoapLayout::helped_axis(const SoapOptions& options) const {
  const bool looks_at_update =
      options.normalizes_update || options.max_update_rms > 0;
  if (looks_at_update || options.gather_fields() > 1) return -1;
  return rules::helped_axis(factors_);
}

namespace {

using Refresh = SoapOptions::Refresh;
using Sort = SoapOptions::Sort;

// The cost of the factor of a side of length d on every step, where e is the
// product of the other sides: rotating the gradient (2d²e) and the update back
// (2d²e), and one triangle of the statistics (d²e). A first moment in the
// original space is rotated too, and so is a copy of the gradient for the KL
// factor of the other side.
Flops side_flops(const SoapOptions& soap, int64_t d, int64_t e) {
  int64_t products = 5;
  if (soap.has_first_moment() && !soap.moment_in_basis) products += 2;
  if (soap.kl) products += 2;
  return products * cubic(d, d, e);
}

// In thirds of d³: a product takes 6, Householder QR with Q formed 4 + 4, three
// rounds of Cholesky QR 3·(3 + 1 + 3), eigh about 27. Estimates of eigenvalues
// are a by-product of the next step's product; only those after the last step
// need a product of their own.
int64_t refresh_thirds(const SoapOptions& soap) {
  if (soap.refresh == Refresh::kEigh) return 27;
  const int64_t qr = soap.refresh == Refresh::kQr ? 8 : 21;
  const bool estimates_after = soap.sort != Sort::kBefore || soap.kl;
  return soap.power_steps * (6 + qr) + (estimates_after ? 6 : 0);
}

// A new basis, rounded to the nearest flop.
Flops basis_flops(const SoapOptions& soap, int64_t d) {
  const Flops thirds = refresh_thirds(soap) * cubic(d, d, d) + Flops(1);
  return Flops(thirds.value() / 3);
}

// Moving the first moment to a new basis: out of the old one and into the new
// one (4d²e), or by the product of both (2d³ + 2d²e), whichever is less.
Flops move_flops(const SoapOptions& soap, int64_t d, int64_t e) {
  if (!soap.has_first_moment() || !soap.moment_in_basis) return Flops(0);
  return 2 * cubic(d, d, e) + 2 * cubic(d, d, std::min(d, e));
}

Flops refresh_flops(const SoapOptions& soap, int64_t d, int64_t e) {
  return basis_flops(soap, d) + move_flops(soap, d, e);
}

// The work of a matrix in strips, each of which moves its own first moment.
RuleWork strips_work(const SoapOptions& soap, const SoapCut& cut, int64_t d,
                     int64_t e) {
  RuleWork work{side_flops(soap, d, e), basis_flops(soap, d)};
  for (int s = 0; s < cut.strips; ++s)
    work.refresh += move_flops(
        soap, d,
        strip_border(e, cut.strips, s + 1) - strip_border(e, cut.strips, s));
  return work;
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

// Per element without factors: the rule is then Adam.
constexpr int64_t kAdamFlops = 14;

RuleWork layout_work(const SoapOptions& soap, const SoapLayout& layout) {
  const FactorLayout& factors = layout.factors();
  const Blocking& blocking = layout.blocking();
  const bool is_matrix = blocking.order() == 2;
  const BlockedSide one(1, 1);
  const bool has_factor[] = {factors.has_factor(0),
                             is_matrix && factors.has_factor(1)};
  if (const SoapCut cut = layout.cut(soap); cut.strips > 1)
    return strips_work(soap, cut, blocking.sizes()[cut.axis],
                       blocking.sizes()[1 - cut.axis]);
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

namespace {

// A helper decomposes the factor of axis `helped`.
StripFacts helper_facts(const SoapOptions& soap, const FactorLayout& factors,
                        int helped) {
  const int64_t d = factors.blocking().sizes()[helped];
  const int64_t e = factors.blocking().sizes()[1 - helped];
  StripFacts facts = facts_of_helper(factors, helped, soap.period);
  facts.strip = side_flops(soap, d, e) + side_flops(soap, e, d);
  facts.factor_bytes = soap_helper_factor_bytes(soap, d, kBytesPerFp32);
  facts.strip_refresh = move_flops(soap, d, e) + move_flops(soap, e, d);
  facts.head_refresh = basis_flops(soap, e);
  facts.helper_refresh = basis_flops(soap, d);
  return facts;
}

}  // namespace

StripFacts SoapFacts::strips(MatrixShape shape) const {
  return count_for("soap", shape, [&] {
    const int64_t dims[] = {shape.rows, shape.cols};
    const SoapLayout layout(soap_, dims);
    const SoapCut cut = layout.cut(soap_);
    StripFacts facts;
    facts.strips = cut.strips;
    if (const int helped = layout.helped_axis(soap_); helped >= 0)
      return helper_facts(soap_, layout.factors(), helped);
    if (cut.strips == 1) return facts;
    const int64_t d = dims[cut.axis];
    const int64_t width = widest_strip(dims[1 - cut.axis], cut.strips);
    facts.strip = side_flops(soap_, d, width);
    facts.strip_sum = cubic(d, d, width);
    facts.segments = 1;
    facts.sum_elements = (Elements(d) * (d + 1)).value() / 2;
    facts.rounded_bytes = kBytesPerFp32;
    facts.factor_bytes = soap_factor_bytes(d, kBytesPerFp32);
    facts.strip_refresh = move_flops(soap_, d, width);
    facts.head_refresh = basis_flops(soap_, d);
    facts.factors_at_refresh = soap_.period > 1;
    return facts;
  });
}

std::vector<TeamState> SoapFacts::team_states(MatrixShape shape, int members,
                                              int member) const {
  const std::vector<int64_t> dims = {shape.rows, shape.cols};
  const SoapLayout layout(soap_, dims);
  if (const int axis = layout.helped_axis(soap_); axis >= 0) {
    const FactorLayout& factors = layout.factors();
    const int basis =
        factors.place(layout.blocking().block(0), axis).first_state + 1;
    return states_with_helper(factors, axis, layout_states(soap_, dims),
                              layout.refresh_failures(), basis, member != 0);
  }
  const SoapCut cut = layout.cut(soap_);
  const auto across = static_cast<size_t>(1 - cut.axis);
  const auto border = [&](int of) {
    return seat_border(dims[across], cut.strips, members, of);
  };
  const int basis = layout.factors().begin_state() + 1;
  std::vector<TeamState> states;
  int number = 0;
  for (StateFact& whole : layout_states(soap_, dims)) {
    const bool is_moment = number < layout.factors().begin_state();
    const bool is_basis = number == basis;
    ++number;
    if (member != 0 && !is_moment && !is_basis) continue;
    TeamState& state = states.emplace_back(
        whole_state(std::move(whole), member == 0 || is_moment));
    if (!is_moment) continue;
    state.own.shape[across] = border(member + 1) - border(member);
    state.in_matrix.first[across] = border(member);
  }
  return states;
}

std::string SoapFacts::algorithm(MatrixShape shape) const {
  const int64_t dims[] = {shape.rows, shape.cols};
  const bool rotates = SoapLayout(soap_, dims).factors().num_factors() > 0;
  return rotates ? word_option(in_force_, "refresh") : "adam";
}

RuleEntry soap_entry() {
  return {"soap",
          "Adam in the eigenbasis of the row and column statistics",
          soap_option_facts(),
          soap_presets(),
          make_facts<SoapFacts>,
          {{"tiny", "0.012"}, {"small", "0.003"}},
          {short_period()}};
}

}  // namespace canzona::rules
