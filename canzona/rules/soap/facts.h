// SOAP sees a tensor as its axes after merging, which of them have a factor,
// the blocks that long axes are cut into, and where all of that lies in the
// states. One list of states for facts and arithmetic alike:
//
//   exp_avg, exp_avg_sq                     as the tensor; the first if beta1
//   per axis L, Q_L (, eigenvalues_L)       factor, basis, its eigenvalues
//   grafting_avg_sq                         as the tensor, if grafting
//   refresh_failures                        one number per factor
//
// Axes of a matrix or vector are called L and R, those of other tensors 0, 1,
// 2 (F_0, Q_0). If sides are cut, factors of equal length are one stack, in the
// order of blocks, the last dim running fastest; those of shorter blocks at the
// end of an axis are named "…_edge".
//
// Nothing here allocates: a layout is made anew for every call.
#pragma once

#include <cstdint>
#include <span>

#include "canzona/rules/blocks.h"
#include "canzona/rules/facts.h"
#include "canzona/rules/soap/options.h"

namespace canzona {

class SoapLayout {
 public:
  // UsageError if the tensor has too many dims or counts do not fit 64 bits.
  SoapLayout(const SoapOptions& options, std::span<const int64_t> dims);

  const FactorLayout& factors() const { return factors_; }
  const Blocking& blocking() const { return factors_.blocking(); }

  // Places in the list of states.
  int exp_avg_sq() const { return exp_avg_sq_; }
  int grafting() const { return factors_.end_state(); }
  int refresh_failures() const { return refresh_failures_; }

 private:
  int exp_avg_sq_;
  FactorLayout factors_;  // each with its basis and perhaps eigenvalues
  int refresh_failures_;
};

// SOAP: Adam in the eigenbasis of second-moment factors, L of the rows and R of
// the columns. Everything it keeps is of use to the owner alone (SoapLayout
// lists it).
//
// A side longer than max_preconditioner_dim gets no factor and is not rotated;
// with no factor at all the rule is Adam, run at the owner.
//
// Defaults are those of the original: weights wait for the second step, because
// a gradient rotated into its own eigenbasis is diagonal, and Adam would blow
// the rounding noise beside the diagonal up to full size. Its rotation of the
// first moment out of the basis and back on every step is left out: the moment
// stays in the basis and is moved only when that changes.

class SoapFacts final : public RuleFacts {
 public:
  explicit SoapFacts(const RuleOptions& given);

  std::string_view name() const override { return "soap"; }
  RuleOptions options() const override { return in_force_; }
  std::vector<StateFact> states(MatrixShape shape) const override;
  std::vector<StateFact> tensor_states(
      const std::vector<int64_t>& dims) const override;
  RuleWork work(MatrixShape shape) const override;
  // Where long sides are cut, unless the length of a whole update matters.
  MatrixShape block(MatrixShape shape) const override;
  std::vector<BlockState> block_states(MatrixShape shape,
                                       int64_t number) const override;
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
