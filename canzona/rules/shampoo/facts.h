// Shampoo: the filtered gradient times inverse roots of the statistics of its
// axes, its length grafted from Adam. Everything it keeps is of use to the
// owner alone, but a classic momentum, which takes in the decay of weights.
//
// Small sizes are merged and long sides cut into blocks (options.h). A side of
// length one is dropped: the matrix is a vector then, with one factor and an
// inverse square root.
//
// Defaults. Blocks of 1024 are the common choice of public Shampoo and the
// size at which stacked blocks fill a device. A refresh is 24 times the work
// of a step for square blocks, so refreshing on every step is out of the
// question; every 10 steps is SOAP's habit, and equal periods make plans of the
// two comparable. Factors are damped by 1e-5 of their norm: beyond that, fp32
// statistics of a few gradients carry rounding and no information, and roots
// that are used for ten steps would blow it up. Coupled Newton reaches such
// roots in 16 iterations; unlike an eigendecomposition it is nothing but
// products. Merging stops at two axes: a small matrix would pay for a factor
// of side m·n.
#pragma once

#include "canzona/rules/facts.h"
#include "canzona/rules/shampoo/layout.h"
#include "canzona/rules/shampoo/options.h"

namespace canzona {

class ShampooFacts final : public RuleFacts {
 public:
  explicit ShampooFacts(const RuleOptions& given) : options_(given) {}

  std::string_view name() const override { return "shampoo"; }
  RuleOptions options() const override { return options_.in_force; }
  // As layout.h says.
  std::vector<StateFact> states(MatrixShape shape) const override;
  std::vector<StateFact> tensor_states(
      const std::vector<int64_t>& dims) const override;
  RuleWork work(MatrixShape shape) const override;
  // Nothing is summed over blocks: grafting takes the length of each of them.
  MatrixShape block(MatrixShape shape) const override;
  std::vector<BlockState> block_states(MatrixShape shape,
                                       int64_t number) const override;
  std::string algorithm(MatrixShape shape) const override;
  bool applies_to_states() const override { return true; }
  int period() const override { return options_.refresh.period; }
  int phases() const override { return options_.refresh.phases; }

  const ShampooOptions& parsed() const { return options_; }

 private:
  ShampooOptions options_;
};

RuleEntry shampoo_entry();

}  // namespace canzona
