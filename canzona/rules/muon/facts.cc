#include "canzona/rules/muon/facts.h"

#include <algorithm>

#include "canzona/rules/counting.h"
#include "canzona/rules/options.h"

namespace canzona {
namespace {

const std::vector<OptionFact>& option_facts() {
  static const std::vector<OptionFact> facts = {
      {"newton_schulz", "auto", "standard|symmetric|gram|auto",
       "form of Newton-Schulz; auto takes the fewest flops for each shape"},
      {"steps", "5", "1..20", "Newton-Schulz steps"},
      {"restarts", "auto", "auto|0..19",
       "restarts of the gram form, fewer than steps; auto: 1, in bf16 2"},
      {"precision", "fp16", "fp16|bf16|fp32",
       "number format of the products in Gram space"},
  };
  return facts;
}

// One restart keeps the Gram chain stable in fp16 and fp32. bf16 has too few
// bits for that: spurious negative eigenvalues grow until the second restart.
RuleOptions with_restarts(RuleOptions options) {
  std::string& restarts = options.at("restarts");
  const int64_t most = integer_option(options, "steps") - 1;
  if (restarts == "auto") {
    const int64_t wanted = options.at("precision") == "bf16" ? 2 : 1;
    restarts = std::to_string(std::min(wanted, most));
  }
  require_at_most("muon", options, "restarts", most, "steps-1");
  return options;
}

// One multiply-add is two flops. A segment of k steps in Gram space is the
// triangle of XX' (m²n), k squares, k-1 products to collect Q, 2(k-1) to
// advance the Gram matrix (m³ each), and the full Q·X (2m²n).
Flops flops(NewtonSchulz form, MatrixShape shape, int64_t steps,
            int64_t restarts) {
  const auto [m, n] = std::minmax(shape.rows, shape.cols);
  const Flops wide = cubic(m, m, n);
  const Flops small = cubic(m, m, m);
  const int64_t segments = restarts + 1;
  switch (form) {
    case NewtonSchulz::kStandard:
      return steps * (4 * wide + 2 * small);
    case NewtonSchulz::kSymmetric:
      return steps * (3 * wide + small);
    case NewtonSchulz::kGram:
      break;
  }
  return 3 * segments * wide + (4 * steps - 3 * segments) * small;
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
    : options_(with_restarts(options_in_force("muon", option_facts(), given))),
      steps_(integer_option(options_, "steps")),
      restarts_(integer_option(options_, "restarts")) {}

std::vector<StateFact> MuonFacts::states(MatrixShape shape) const {
  return states_for("muon", shape, [&] {
    return std::vector<StateFact>{
        {"momentum", {shape.rows, shape.cols}, "fp32", Lives::kWithShard}};
  });
}

// With S segments, gram less symmetric is 3(K-S)·m²(m-n): never above zero, and
// zero for square matrices and for segments of one step. There the symmetric
// form is the simpler one. Standard is never below symmetric.
NewtonSchulz MuonFacts::form(MatrixShape shape) const {
  const std::string& wanted = options_.at("newton_schulz");
  for (NewtonSchulz form : {NewtonSchulz::kStandard, NewtonSchulz::kSymmetric,
                            NewtonSchulz::kGram}) {
    if (wanted == to_string(form)) return form;
  }
  const bool tie =
      shape.rows == shape.cols || is_empty(shape) || restarts_ + 1 == steps_;
  return tie ? NewtonSchulz::kSymmetric : NewtonSchulz::kGram;
}

Work MuonFacts::work(MatrixShape shape) const {
  return count_for("muon", shape, [&] {
    return Work{flops(form(shape), shape, steps_, restarts_), Flops(0)};
  });
}

std::string MuonFacts::algorithm(MatrixShape shape) const {
  return std::string(to_string(form(shape)));
}

RuleEntry muon_entry() {
  return {"muon", "orthogonal factor of the momentum, by Newton-Schulz",
          option_facts(), make_facts<MuonFacts>};
}

}  // namespace canzona
