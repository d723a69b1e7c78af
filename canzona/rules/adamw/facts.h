// AdamW is element-wise: every rank updates what it stores and nothing is
// gathered. It takes the tensors that no matrix rule takes (embeddings, heads,
// norms, biases).
#pragma once

#include "canzona/rules/facts.h"

namespace canzona::rules {

class AdamWFacts final : public RuleFacts {
 public:
  explicit AdamWFacts(const RuleOptions& given);

  std::string_view name() const override { return "adamw"; }
  RuleOptions options() const override { return options_; }
  std::vector<StateFact> states(MatrixShape shape) const override;
  RuleWork work(MatrixShape shape) const override;
  std::string algorithm(MatrixShape) const override { return "elementwise"; }
  bool needs_whole_matrix() const override { return false; }
  int64_t gather_bytes_per_element() const override { return 0; }
  int64_t scatter_bytes_per_element() const override { return 0; }

 private:
  RuleOptions options_;
};

RuleEntry adamw_entry();

}  // namespace canzona::rules
