#include "canzona/rules/muon/facts.h"

#include <algorithm>

#include "canzona/base/units.h"
#include "canzona/rules/counting.h"
#include "canzona/rules/muon/options.h"
#include "canzona/rules/options.h"

namespace canzona {
namespace {

// One multiply-add is two flops. A segment of k steps in Gram space is the
// triangle of XX' (m²n), k squares, k-1 products to collect Q, 2(k-1) to
// advance the Gram matrix (m³ each), and the full Q·X (2m²n). A step with c = 0
// needs no square.
Flops flops(NewtonSchulz form, MatrixShape shape, int64_t steps,
            int64_t squares, int64_t restarts) {
  const auto [m, n] = std::minmax(shape.rows, shape.cols);
  const Flops wide = cubic(m, m, n);
  const Flops small = cubic(m, m, m);
  const int64_t segments = restarts + 1;
  switch (form) {
    case NewtonSchulz::kStandard:
      return steps * 4 * wide + squares * 2 * small;
    case NewtonSchulz::kSymmetric:
      return steps * 3 * wide + squares * small;
    case NewtonSchulz::kGram:
      break;
  }
  return 3 * segments * wide + (squares + 3 * (steps - segments)) * small;
}

// From where on the Gram form is quicker: m rows and n columns, m <= n, with
// n >= aspect·m and m >= rows. Measured beforehand, so that the planner and all
// ranks choose alike.
struct GramFrom {
  int64_t rows;
  double aspect;
};
GramFrom gram_from(const RuleOptions& options, bool small) {
  const bool bf16 = options.at("precision") == "bf16" && !small;
  // An H200, batches of 512 rows and more: square matrices are quicker by the
  // symmetric form or as quick, from 1.6 on all by the Gram form. With
  // unsafe=on, tiny ones in bf16 would have to start anew after every step.
  if (options.at("device") == "cuda") return {bf16 ? 32 : 1, 1.25};
  return bf16 ? GramFrom{128, 2.0} : GramFrom{64, 1.5};
}

}  // namespace

std::string_view to_string(NewtonSchulz form) {
  switch (form) {
    case NewtonSchulz::kStandard:
      return "standard";
    case NewtonSchulz::kSymmetric:
      return "symmetric";
    case NewtonSchulz::kGram:
      break;
  }
  return "gram";
}

MuonFacts::MuonFacts(const RuleOptions& given)
    : options_(muon_options_in_force(given)),
      coefficients_(muon_coefficients(options_)),
      restarts_(integer_option(options_, "restarts")),
      flattens_(options_.at("flatten") == "first_dim"),
      small_restarts_(muon_restarts_needed(options_, "fp32")) {}

std::vector<StateFact> MuonFacts::states(MatrixShape shape) const {
  return states_for("muon", shape, [&] {
    return std::vector<StateFact>{
        {"momentum", {shape.rows, shape.cols}, "fp32", Lives::kWithShard}};
  });
}

std::vector<StateFact> MuonFacts::tensor_states(
    const std::vector<int64_t>& dims) const {
  if (!flattens_ || dims.size() < 3) return RuleFacts::tensor_states(dims);
  return states(stack_of(dims).shape);
}

MuonStack MuonFacts::stack_of(const std::vector<int64_t>& dims) const {
  const size_t order = dims.size();
  if (order < 2) {
    std::vector<std::string> sides;
    for (int64_t d : dims) sides.push_back(std::to_string(d));
    throw UsageError(cat("rule muon: a tensor of shape ", join(sides, "x"),
                         " is no matrix; leave it to adamw"));
  }
  const size_t kept = flattens_ ? 1 : order - 1;  // axes before the columns
  MuonStack stack{{dims[kept - 1], 1}, 1};
  for (size_t i = 0; i + 1 < kept; ++i)
    stack.count = checked_mul(stack.count, dims[i], "matrices in a tensor");
  for (size_t i = kept; i < order; ++i)
    stack.shape.cols = checked_mul(stack.shape.cols, dims[i], "columns");
  return stack;
}

bool MuonFacts::is_small(MatrixShape shape) const {
  constexpr int64_t kSmall = 64;
  return options_.at("precision") == "bf16" &&
         !switch_option(options_, "unsafe") &&
         std::min(shape.rows, shape.cols) <= kSmall;
}

// With S segments, gram less symmetric is 3(K-S)·m²(m-n): never above zero, and
// zero for square matrices and for segments of one step. There the symmetric
// form is the simpler one. Standard is never below symmetric.
MuonWay MuonFacts::way(MatrixShape shape) const {
  MuonWay way{NewtonSchulz::kSymmetric, is_small(shape)};
  const std::string& wanted = options_.at("newton_schulz");
  for (NewtonSchulz form : {NewtonSchulz::kStandard, NewtonSchulz::kSymmetric,
                            NewtonSchulz::kGram}) {
    if (wanted == to_string(form)) return {form, way.small};
  }
  const int64_t restarts = way.small ? small_restarts_ : restarts_;
  const bool tie =
      shape.rows == shape.cols || is_empty(shape) || restarts + 1 == steps();
  if (tie) return way;
  const auto [m, n] = std::minmax(shape.rows, shape.cols);
  const GramFrom from = gram_from(options_, way.small);
  const bool gram = m >= from.rows && static_cast<double>(n) >=
                                          from.aspect * static_cast<double>(m);
  if (gram) way.form = NewtonSchulz::kGram;
  return way;
}

std::string MuonFacts::precision(MatrixShape shape) const {
  return way(shape).small ? "fp32" : options_.at("precision");
}

RuleWork MuonFacts::work(MatrixShape shape) const {
  return count_for("muon", shape, [&] {
    const auto squares =
        std::count_if(coefficients_.begin(), coefficients_.end(),
                      [](const Coefficients& k) { return k.c != 0; });
    const auto [form, small] = way(shape);
    return RuleWork{flops(form, shape, steps(), squares,
                          small ? small_restarts_ : restarts_),
                    Flops(0)};
  });
}

std::string MuonFacts::algorithm(MatrixShape shape) const {
  const auto [form, small] = way(shape);
  return std::string(to_string(form)) + (small ? "_fp32" : "");
}

// One restart lies in the middle, rather early than late; of several the first
// segments are the longer ones. In bf16 [2,4] of five steps stands what [1,3]
// does not: two levels of singular values under polar_express.
std::vector<int64_t> MuonFacts::restart_steps(bool small) const {
  const int64_t restarts = small ? small_restarts_ : restarts_;
  if (restarts == 1) return {std::max<int64_t>(1, steps() / 2)};
  std::vector<int64_t> after;
  for (int64_t i = 1; i <= restarts; ++i)
    after.push_back((i * steps() + restarts) / (restarts + 1));
  return after;
}

RuleEntry muon_entry() {
  return {"muon", "orthogonal factor of the momentum, by Newton-Schulz",
          muon_options(), muon_presets(), make_facts<MuonFacts>};
}

}  // namespace canzona
