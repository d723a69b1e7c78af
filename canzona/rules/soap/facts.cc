#include "canzona/rules/soap/facts.h"

#include <algorithm>
#include <array>

#include "canzona/rules/counting.h"
#include "canzona/rules/options.h"

namespace canzona {
namespace {

using Refresh = SoapOptions::Refresh;
using Sort = SoapOptions::Sort;

// What the factor of a side of length d costs on every step, e being the
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

// Blocks of equal length along an axis.
struct Kind {
  int64_t count = 0;
  int64_t length = 0;
};
std::array<Kind, 2> kinds_of(const SoapAxis& axis) {
  return {Kind{axis.num_full(), axis.block},
          Kind{axis.edge() > 0 ? 1 : 0, axis.edge()}};
}

// Of `count` blocks of these sides.
Work blocks_work(const SoapOptions& soap, int64_t count,
                 std::span<const int64_t> sides,
                 std::span<const bool> has_factor) {
  Work work;
  for (size_t i = 0; i < sides.size(); ++i) {
    if (!has_factor[i]) continue;
    const int64_t other = sides.size() == 2 ? sides[1 - i] : 1;
    work.every_step += count * side_flops(soap, sides[i], other);
    work.refresh += count * refresh_flops(soap, sides[i], other);
  }
  return work;
}

Work layout_work(const SoapOptions& soap, const SoapLayout& layout) {
  if (layout.num_factors() == 0) return {};
  const SoapAxis rows = layout.axis(0);
  const SoapAxis cols = layout.order() == 2 ? layout.axis(1) : SoapAxis{};
  const bool has_factor[] = {rows.has_factor, cols.has_factor};
  Work work;
  for (const Kind& r : kinds_of(rows)) {
    for (const Kind& c : kinds_of(cols)) {
      const int64_t sides[] = {r.length, c.length};
      const int64_t count = checked_mul(r.count, c.count, "blocks");
      const Work more = blocks_work(soap, count, sides, has_factor);
      work.every_step += more.every_step;
      work.refresh += more.refresh;
    }
  }
  return work;
}

StateFact at_owner(std::string name, std::vector<int64_t> shape,
                   Initially initially = Initially::kZero) {
  return {std::move(name), std::move(shape), "fp32", Lives::kWithOwner,
          initially};
}

// The states of an axis's factors of one length.
void add_factors(std::vector<StateFact>& states, const SoapOptions& soap,
                 const SoapLayout& layout, int along, bool edge) {
  const SoapAxis& axis = layout.axis(along);
  const int64_t d = edge ? axis.edge() : axis.block;
  if (edge && d == 0) return;
  const bool lettered = layout.order() <= 2;
  const std::string side =
      lettered ? (along == 0 ? "L" : "R") : std::to_string(along);
  const std::string end = edge ? "_edge" : "";
  std::vector<int64_t> square = {d, d};
  std::vector<int64_t> row = {d};
  if (soap.cuts_long_sides) {
    square.insert(square.begin(), layout.stack_size(along, edge));
    row.insert(row.begin(), square.front());
  }
  states.push_back(at_owner(cat(lettered ? "" : "F_", side, end), square));
  states.push_back(
      at_owner(cat("Q_", side, end), square, Initially::kIdentity));
  if (soap.keeps_eigenvalues())
    states.push_back(at_owner(cat("eigenvalues_", side, end), row));
}

std::vector<StateFact> layout_states(const SoapOptions& soap,
                                     const std::vector<int64_t>& dims) {
  const SoapLayout layout(soap, dims);
  std::vector<StateFact> states;
  if (soap.has_first_moment()) states.push_back(at_owner("exp_avg", dims));
  states.push_back(at_owner("exp_avg_sq", dims));
  for (int i = 0; i < layout.order(); ++i) {
    if (!layout.axis(i).has_factor) continue;
    for (bool edge : {false, true}) add_factors(states, soap, layout, i, edge);
  }
  if (soap.has_grafting_moment())
    states.push_back(at_owner("grafting_avg_sq", dims));
  if (layout.num_factors() > 0)
    states.push_back(at_owner(
        "refresh_failures",
        {checked_mul(layout.num_blocks(), layout.num_factors(), "factors")}));
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

Work SoapFacts::work(MatrixShape shape) const {
  return count_for("soap", shape, [&] {
    const int64_t dims[] = {shape.rows, shape.cols};
    return layout_work(soap_, SoapLayout(soap_, dims));
  });
}

std::string SoapFacts::algorithm(MatrixShape shape) const {
  const int64_t dims[] = {shape.rows, shape.cols};
  const bool rotates = SoapLayout(soap_, dims).num_factors() > 0;
  return rotates ? word_option(in_force_, "refresh") : "adam";
}

RuleEntry soap_entry() {
  return {"soap", "Adam in the eigenbasis of the row and column statistics",
          soap_option_facts(), soap_presets(), make_facts<SoapFacts>};
}

}  // namespace canzona
