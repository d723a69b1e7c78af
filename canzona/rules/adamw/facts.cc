#include "canzona/rules/adamw/facts.h"

#include "canzona/rules/counting.h"
#include "canzona/rules/options.h"

namespace canzona {
namespace {

// Each of + - * / and the square root counts as one flop, scalars are free:
//   p *= 1 - lr·wd                       1
//   m  = β₁·m + (1-β₁)·g                 3
//   v  = β₂·v + ((1-β₂)·g)·g             4
//   d  = sqrt(v) / sqrt(1-β₂ᵗ) + ε       3
//   p -= lr/(1-β₁ᵗ) · (m / d)            3
constexpr int64_t kFlopsPerElement = 14;

const std::vector<OptionFact>& option_facts() {
  static const std::vector<OptionFact> facts;
  return facts;
}

}  // namespace

AdamWFacts::AdamWFacts(const RuleOptions& given)
    : options_(options_in_force("adamw", option_facts(), given)) {}

std::vector<StateFact> AdamWFacts::states(MatrixShape shape) const {
  return states_for("adamw", shape, [&] {
    const std::vector<int64_t> sides = {shape.rows, shape.cols};
    return std::vector<StateFact>{
        {"exp_avg", sides, "fp32", Lives::kWithShard},
        {"exp_avg_sq", sides, "fp32", Lives::kWithShard}};
  });
}

Work AdamWFacts::work(MatrixShape shape) const {
  return count_for("adamw", shape, [&] {
    return Work{kFlopsPerElement * Flops(shape.rows) * shape.cols, Flops(0)};
  });
}

RuleEntry adamw_entry() {
  return {"adamw", "element-wise; takes the tensors that no matrix rule takes",
          option_facts(), make_facts<AdamWFacts>};
}

}  // namespace canzona
