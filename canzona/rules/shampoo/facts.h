// Shampoo: the filtered gradient times inverse roots of the statistics of its
// axes, with its length grafted from Adam. All states live at the owner, except
// the classic momentum, which includes the weight decay.
//
// Small sizes are merged and long sides cut into blocks (options.h). A side of
// length one is dropped: the matrix is then a vector, with one factor and an
// inverse square root.
//
// Defaults. Blocks of 1024 are the common choice of public Shampoo
// implementations and the size at which stacked blocks fill a device. For
// square blocks a refresh is 24 times the work of a step, so refreshing on
// every step is out of the question; every 10 steps is what SOAP does, and
// equal periods make plans of the two comparable. Factors are damped by 1e-5 of
// their norm: below that, fp32 statistics of a few gradients hold rounding
// errors and no information, and roots that are used for ten steps would
// amplify them. Coupled Newton reaches such roots in 16 iterations; unlike an
// eigendecomposition it consists of products only. Merging stops at two axes: a
// small matrix would pay for a factor of side m·n.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "canzona/rules/blocks.h"
#include "canzona/rules/facts.h"
#include "canzona/rules/options.h"

namespace canzona::rules {

// Shampoo's options: how it cuts blocks, how it takes inverse roots (computed
// in roots.h), and the rest.

// The sizes that Shampoo cuts into blocks: those of a tensor after merging
// small adjacent ones.
//
//   merge_sizes({64, 3, 7, 7}, {.max_dim = 1024, .merge = 2})   64 147
struct BlockingOptions {
  int64_t max_dim = 1024;
  int merge = 2;  // number of axes to merge down to; 0: no merging
};

// Drops sizes of one, then, from the last axis backwards, multiplies adjacent
// sizes while more than `merge` axes remain and the product is at most max_dim.
// A size of zero gives one axis of zero. At least one axis remains.
AxisSizes merge_sizes(std::span<const int64_t> dims,
                      const BlockingOptions& options);

enum class RootMethod { kEigen, kPseudo, kNewton, kHigher, kCans };

// The power to compute: A to the minus q/p.
struct InversePower {
  int64_t p = 4;
  int64_t q = 1;

  double exponent() const {
    return static_cast<double>(q) / static_cast<double>(p);
  }
};

// All methods except kPseudo, which works on A itself, work on A + d·I. For
// kHigher d is at least abs_epsilon, for the others at least epsilon; for all
// of them it is at least rel_epsilon·|A|_F. kCans computes A^(-1/2) only.
struct RootOptions {
  RootMethod method = RootMethod::kEigen;
  double epsilon = 0;
  double rel_epsilon = 0;
  double abs_epsilon = 0;
  // kEigen adds d to the matrix, or else to its eigenvalues after negative ones
  // have been raised to 0.
  bool perturb_before = true;
  // kPseudo treats eigenvalues up to the larger of rank_rtol times the largest
  // one and rank_atol as 0, and their inverse powers too. A negative rank_rtol
  // means as many units of rounding as the matrix has rows.
  double rank_rtol = -1;
  double rank_atol = 0;
  // The coupled iterations end when max |M - I| is at most the tolerance.
  // kHigher sums `order` terms of a series per iteration; with two terms it is
  // Newton's method.
  int64_t max_iterations = 100;
  double tolerance = 1e-6;
  int order = 3;
};

// The coefficients of CANS, an iteration for the inverse square root. The rule
// uses them, and fixtures are compared with them.

// CANS: Y and Z are polynomials of B/s, where s is an upper bound of B's
// eigenvalues and at least kCansLeastSize. Each step forms P = Z·Y, whose
// eigenvalues tend to 1, and replaces Y by bY + aYP and Z by bZ + aPZ, so that
// Z ends as (B/s)^(-1/2).
struct CansStep {
  double b = 0;
  double a = 0;
};
std::span<const CansStep> cans_steps();
inline constexpr double kCansLeastSize = 1e-12;

// Shampoo's options: facts, presets, and the values in force as numbers.
//
//   ShampooOptions options({{"preset", "meta"}, {"merge", "2"}});
//   options.beta2, options.power(2, 0).p
//
// Immutable; standard library only.

enum class Grafting { kNone, kSgd, kAdagrad, kRmsprop, kAdam };

const std::vector<OptionFact>& shampoo_option_facts();
const std::vector<Preset>& shampoo_presets();

struct ShampooOptions {
  // Throws UsageError for whatever options_in_force refuses, a first refresh
  // before one period has passed, a decay of 1 where that keeps nothing, an
  // exponent that the root method cannot compute, damping of a pseudo-inverse,
  // and options of the classic momentum without it.
  explicit ShampooOptions(const RuleOptions& given);

  RuleOptions in_force;
  RefreshOptions refresh;
  std::optional<int64_t> start_step;  // the first refresh; none: never
  BlockingOptions blocking;
  RootOptions root;
  // Empty: 1/(2·order). One: for all axes. More: one per axis, for tensors with
  // as many axes; others use 1/(2·order).
  std::vector<InversePower> exponents;

  double learning_rate;
  double weight_decay;
  std::string decay_form;
  double beta1;
  double beta2;
  double beta3;
  bool bias_correction;
  bool drop_weighting;  // gradients enter factors with weight 1
  bool kl;              // … multiplied by the roots of all other axes
  bool trace_scaling;   // factors are divided by the root of their trace
  // The momentum of the direction, decay included: it keeps this fraction of
  // itself and takes 1 - dampening of the direction.
  double classic_momentum;
  double classic_dampening;
  bool classic_nesterov;
  Grafting grafting;
  double grafting_beta2;
  double grafting_epsilon;
  bool splits_products;  // of statistics and directions

  // The power for an axis of a tensor of this order after merging; q is 0 if
  // the axis has no factors. Throws UsageError if the root method cannot
  // compute it.
  InversePower power(int order, int axis) const;
  // False if the axis has no factors, because no root would ever be used.
  bool has_factor(int order, int axis) const {
    return start_step.has_value() && power(order, axis).q != 0;
  }
  // The step, delayed by a tensor's phase, so that none of its refreshes
  // precedes the first step intended for one.
  int64_t scheduled_step(int64_t step, int phase) const {
    return step - (refresh.period - phase % refresh.period) % refresh.period;
  }
  bool is_refresh(int64_t step, int phase) const;
  bool filters() const { return beta1 != 0; }
  bool has_momentum() const { return classic_momentum != 0; }
  // True if the grafting method has a second moment.
  bool grafts_from_moment() const {
    return grafting != Grafting::kNone && grafting != Grafting::kSgd;
  }
};

// A layout says where the states of one tensor lie. The owner keeps, in this
// order:
//
//   filtered_grad, grafting_avg_sq   like the tensor; absent if unused
//   L inv_L                          factors of axis 0 and their inverse roots,
//                                    stacked: {count, d, d}
//   L_edge inv_L_edge                those of the shorter blocks at its end
//   R …                              the same for axis 1
//   refresh_failures                 consecutive failed refreshes per factor:
//                                    {blocks, axes with factors}
//
// Every rank keeps with its shard:
//
//   momentum                         like the tensor, if classic_momentum
//
// With more than two axes, factors are called F_0, F_1, F_2 and so on. Factors
// of one state are in block order. No other code knows this layout. Every step
// constructs it anew, without the heap.
class ShampooLayout {
 public:
  static constexpr int kNone = -1;

  ShampooLayout(const ShampooOptions& options, std::span<const int64_t> dims);

  const FactorLayout& factors() const { return factors_; }
  const Blocking& blocking() const { return factors_.blocking(); }
  int num_factors() const { return factors_.num_factors(); }  // of a block
  bool has_factor(int axis) const { return factors_.has_factor(axis); }
  int filtered_grad() const { return filtered_grad_; }
  int grafting() const { return grafting_; }
  int refresh_failures() const;
  int momentum() const;

  std::vector<StateFact> states(std::span<const int64_t> dims) const;

 private:
  int filtered_grad_;
  int grafting_;
  FactorLayout factors_;  // each with its inverse root
  bool has_momentum_;
};

// What a helper sends: whether a root was found, 8 bytes, at a border of 16,
// and the root.
inline constexpr int64_t kRootSentAt = 16;

class ShampooFacts final : public RuleFacts {
 public:
  explicit ShampooFacts(const RuleOptions& given) : options_(given) {}

  std::string_view name() const override { return "shampoo"; }
  RuleOptions options() const override { return options_.in_force; }
  // The states that ShampooLayout lists.
  std::vector<StateFact> states(MatrixShape shape) const override;
  std::vector<StateFact> tensor_states(
      const std::vector<int64_t>& dims) const override;
  RuleWork work(MatrixShape shape) const override;
  // Blocks are independent: grafting scales each of them by its own length.
  MatrixShape block(MatrixShape shape) const override;
  std::vector<BlockState> block_states(MatrixShape shape,
                                       int64_t number) const override;
  // A helper may take the root of one factor of a matrix that is one block.
  StripFacts strips(MatrixShape shape) const override;
  std::vector<TeamState> team_states(MatrixShape shape, int members,
                                     int member) const override;
  std::string algorithm(MatrixShape shape) const override;
  bool applies_to_states() const override { return true; }
  bool refreshes(int64_t step, int phase) const override {
    return options_.is_refresh(step, phase);
  }
  int period() const override { return options_.refresh.period; }
  int phases() const override { return options_.refresh.phases; }

  const ShampooOptions& parsed() const { return options_; }

 private:
  ShampooOptions options_;
};

RuleEntry shampoo_entry();

}  // namespace canzona::rules
