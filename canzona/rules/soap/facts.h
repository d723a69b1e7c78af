// SOAP: Adam in the eigenbasis of second-moment factors, L of the rows and R of
// the columns. Everything it keeps is of use to the owner alone (layout.h lists
// it).
//
// A side longer than max_preconditioner_dim gets no factor and is not rotated;
// with no factor at all the rule is Adam, run at the owner.
//
// Defaults are those of the original: weights wait for the second step, because
// a gradient rotated into its own eigenbasis is diagonal, and Adam would blow
// the rounding noise beside the diagonal up to full size. Its rotation of the
// first moment out of the basis and back on every step is left out: the moment
// stays in the basis and is moved only when that changes.
#pragma once

#include "canzona/rules/facts.h"
#include "canzona/rules/soap/layout.h"
#include "canzona/rules/soap/options.h"

namespace canzona {

class SoapFacts final : public RuleFacts {
 public:
  explicit SoapFacts(const RuleOptions& given);

  std::string_view name() const override { return "soap"; }
  RuleOptions options() const override { return in_force_; }
  std::vector<StateFact> states(MatrixShape shape) const override;
  std::vector<StateFact> tensor_states(
      const std::vector<int64_t>& dims) const override;
  RuleWork work(MatrixShape shape) const override;
  // "qr", "cholesky_qr" or "eigh"; "adam" where no side has a factor.
  std::string algorithm(MatrixShape shape) const override;
  int period() const override { return soap_.period; }
  int phases() const override { return soap_.phases; }
  int gather_fields() const override { return soap_.gather_fields(); }

  // The same options, read.
  const SoapOptions& read_options() const { return soap_; }

 private:
  RuleOptions in_force_;
  SoapOptions soap_;
};

RuleEntry soap_entry();

}  // namespace canzona
