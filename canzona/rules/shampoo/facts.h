// Shampoo: the momentum times inverse fourth roots of the row and column
// statistics, its length grafted from Adam. Everything it keeps is of use to
// the owner alone.
//
// A side longer than max_preconditioner_dim is cut into blocks (blocks.h). A
// side of length one is dropped: the matrix is a vector then, with one factor
// and an inverse square root.
//
// Defaults. Blocks of 1024 are the common choice of public Shampoo and the
// size at which stacked blocks fill a device. A refresh is 24 times the work
// of a step for square blocks, so refreshing on every step is out of the
// question; every 10 steps is SOAP's habit, and equal periods make plans of the
// two comparable. Coupled Newton needs 18 iterations at a condition number of
// 1e6, beyond which fp32 factors carry no information and damping must bound
// it; unlike an eigendecomposition it is nothing but products. Small sides are
// not merged into one vector: a small matrix would pay for a factor of side
// m·n.
#pragma once

#include "canzona/rules/facts.h"
#include "canzona/rules/options.h"

namespace canzona {

class ShampooFacts final : public RuleFacts {
 public:
  explicit ShampooFacts(const RuleOptions& given);

  std::string_view name() const override { return "shampoo"; }
  RuleOptions options() const override { return options_; }
  // Factors of equal size are one state of shape {count, d, d}; those of the
  // shorter blocks at the end of a side are named "…_edge".
  std::vector<StateFact> states(MatrixShape shape) const override;
  Work work(MatrixShape shape) const override;
  std::string algorithm(MatrixShape) const override { return "newton"; }
  int period() const override { return refresh_.period; }
  int phases() const override { return refresh_.phases; }

 private:
  RuleOptions options_;
  RefreshOptions refresh_;
  int64_t max_dim_;
  int64_t root_iterations_;
};

RuleEntry shampoo_entry();

}  // namespace canzona
