#include "canzona/rules/adamw/facts.h"

#include "canzona/rules/options.h"

namespace canzona::rules {
namespace {

// Each of + - * / and the square root counts as one flop, scalars are free:
//   p *= 1 - lr·wd                       1
//   m  = β₁·m + (1-β₁)·g                 3
//   v  = β₂·v + ((1-β₂)·g)·g             4
//   d  = sqrt(v) / sqrt(1-β₂ᵗ) + ε       3
//   p -= lr/(1-β₁ᵗ) · (m / d)            3
constexpr int64_t kFlopsPerElement = 14;

const std::vector<OptionFact>& option_facts() {
  static const std::vector<OptionFact> facts = with_step_size(
      "0.001", "0.01",
      {
          {"decay_form", "decoupled", "decoupled|independent|palm|l2",
           "a weight loses lr*wd, wd or lr^2*wd of itself per step; l2: wd*p "
           "is added to the gradient"},
          {"beta1", "0.9", "0.0..<1.0", "decay rate of the first moment"},
          {"beta2", "0.999", "0.0..<1.0", "decay rate of the second moment"},
          {"epsilon", "1e-08", "0.0..inf",
           "added to the root of the second moment"},
          {"epsilon_mode", "corrected", "corrected|uncorrected",
           "epsilon is added after or before the bias correction"},
      });
  return facts;
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {"torch", "torch.optim.AdamW", {}},
      {"keller",
       "KellerJordan/Muon, for tensors that are not matrices",
       {{"weight_decay", "0"}, {"beta2", "0.95"}, {"epsilon", "1e-10"}}},
      {"moonlight",
       "MoonshotAI/Moonlight, for tensors that are not matrices",
       {{"weight_decay", "0.1"},
        {"beta2", "0.95"},
        {"epsilon_mode", "uncorrected"}}},
      {"apex", "NVIDIA/apex, used by Megatron", {}},
  };
  return all;
}

}  // namespace

AdamWFacts::AdamWFacts(const RuleOptions& given)
    : options_(options_in_force("adamw", option_facts(), presets(), given)) {}

std::vector<StateFact> AdamWFacts::states(MatrixShape shape) const {
  return states_for("adamw", shape, [&] {
    const std::vector<int64_t> sides = {shape.rows, shape.cols};
    return std::vector<StateFact>{
        {"exp_avg", sides, "fp32", Lives::kWithShard},
        {"exp_avg_sq", sides, "fp32", Lives::kWithShard}};
  });
}

RuleWork AdamWFacts::work(MatrixShape shape) const {
  return count_for("adamw", shape, [&] {
    return RuleWork{kFlopsPerElement * Flops(shape.rows) * shape.cols,
                    Flops(0)};
  });
}

RuleEntry adamw_entry() {
  return {"adamw",
          "element-wise; takes the tensors that no matrix rule takes",
          option_facts(),
          presets(),
          make_facts<AdamWFacts>,
          {{"tiny", "0.0015"}, {"small", "0.0005"}}};
}

}  // namespace canzona::rules
