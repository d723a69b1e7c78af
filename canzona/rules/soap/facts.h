// SOAP: Adam in the eigenbasis of the two second-moment factors L (rows) and
// R (columns). Everything it keeps is of use to the owner alone.
//
// A side longer than max_preconditioner_dim gets no factor and is not rotated;
// with no factor at all the rule is Adam, run at the owner.
#pragma once

#include "canzona/rules/facts.h"
#include "canzona/rules/options.h"

namespace canzona {

class SoapFacts final : public RuleFacts {
 public:
  explicit SoapFacts(const RuleOptions& given);

  std::string_view name() const override { return "soap"; }
  RuleOptions options() const override { return options_; }
  std::vector<StateFact> states(MatrixShape shape) const override;
  Work work(MatrixShape shape) const override;
  // "qr", or "adam" where no side has a factor.
  std::string algorithm(MatrixShape shape) const override;
  int period() const override { return refresh_.period; }
  int phases() const override { return refresh_.phases; }

  bool has_left_factor(MatrixShape shape) const;
  bool has_right_factor(MatrixShape shape) const;

 private:
  RuleOptions options_;
  RefreshOptions refresh_;
  int64_t max_dim_;
};

RuleEntry soap_entry();

}  // namespace canzona
