#include "canzona/rules/nsgd/facts.h"

#include "canzona/rules/options.h"

namespace canzona::rules {
namespace {

// At the owner: square and add, then scale.
constexpr int64_t kNsgdFlopsPerElement = 3;

const std::vector<OptionFact>& nsgd_option_facts() {
  static const std::vector<OptionFact> facts = with_step_size(
      "0.001", "0.1",
      {
          {"momentum", "0.95", "0.0..<1.0", "decay rate of the momentum"},
      });
  return facts;
}

}  // namespace

NsgdFacts::NsgdFacts(const RuleOptions& given)
    : options_(options_in_force("nsgd", nsgd_option_facts(), given)) {}

std::vector<StateFact> NsgdFacts::states(MatrixShape shape) const {
  return states_for("nsgd", shape, [&] {
    return std::vector<StateFact>{
        {"momentum", {shape.rows, shape.cols}, "fp32", Lives::kWithShard}};
  });
}

RuleWork NsgdFacts::work(MatrixShape shape) const {
  return count_for("nsgd", shape, [&] {
    return RuleWork{kNsgdFlopsPerElement * Flops(shape.rows) * shape.cols,
                    Flops(0)};
  });
}

RuleEntry nsgd_entry() {
  return {"nsgd",
          "momentum, each matrix scaled to a root mean square of 1",
          nsgd_option_facts(),
          {},
          make_facts<NsgdFacts>,
          {{"tiny", "0.003"}, {"small", "0.002"}}};
}

}  // namespace canzona::rules
