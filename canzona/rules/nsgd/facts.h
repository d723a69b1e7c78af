// Normalised SGD: the momentum of a matrix, scaled to a root mean square of 1.
// It is the smallest rule that needs whole matrices; docs/adding_a_rule.md
// walks through it.
#pragma once

#include "canzona/rules/facts.h"

namespace canzona::rules {

class NsgdFacts final : public RuleFacts {
 public:
  explicit NsgdFacts(const RuleOptions& given);

  std::string_view name() const override { return "nsgd"; }
  RuleOptions options() const override { return options_; }
  std::vector<StateFact> states(MatrixShape shape) const override;
  RuleWork work(MatrixShape shape) const override;
  std::string algorithm(MatrixShape) const override { return "norm"; }

 private:
  RuleOptions options_;
};

RuleEntry nsgd_entry();

}  // namespace canzona::rules
