// Shampoo can be told how it cuts blocks, how it takes inverse roots (roots.h
// does it), and the rest of its options.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "canzona/rules/blocks.h"
#include "canzona/rules/facts.h"
#include "canzona/rules/options.h"

namespace canzona {

// Shampoo cuts these sizes into blocks: those of a tensor whose small
// neighbouring sizes are merged.
//
//   merge_sizes({64, 3, 7, 7}, {.max_dim = 1024, .merge = 2})   64 147
struct BlockingOptions {
  int64_t max_dim = 1024;
  int merge = 2;  // how many axes to merge down to; 0 leaves them as they are
};

// Drops sizes of one, then, from the last axis on, multiplies neighbours while
// more than `merge` axes remain and the product is at most max_dim. A size of
// zero gives one axis of zero. At least one axis remains.
AxisSizes merge_sizes(std::span<const int64_t> dims,
                      const BlockingOptions& options);

enum class RootMethod { kEigen, kPseudo, kNewton, kHigher, kCans };

// The power of a matrix that is wanted: A to the minus q/p.
struct InversePower {
  int64_t p = 4;
  int64_t q = 1;

  double exponent() const {
    return static_cast<double>(q) / static_cast<double>(p);
  }
};

// All methods but kPseudo, which works on A itself, work on A + d·I. For
// kHigher d is at least abs_epsilon, for the others at least epsilon; for all
// of them it is at least rel_epsilon·|A|_F. kCans gives A^(-1/2) alone.
struct RootOptions {
  RootMethod method = RootMethod::kEigen;
  double epsilon = 0;
  double rel_epsilon = 0;
  double abs_epsilon = 0;
  // kEigen adds d to the matrix or to its eigenvalues, after negative ones have
  // been lifted to 0.
  bool perturb_before = true;
  // kPseudo counts eigenvalues up to the larger of rank_rtol times the largest
  // one and rank_atol as 0, and their inverse powers, too. Below 0: as many
  // units of rounding as the matrix has rows.
  double rank_rtol = -1;
  double rank_atol = 0;
  // The coupled iterations end when max |M - I| is at most the tolerance.
  // kHigher sums `order` terms of a series per iteration; two of them are
  // Newton's method.
  int64_t max_iterations = 100;
  double tolerance = 1e-6;
  int order = 3;
};

// The steps of CANS, an iteration for the inverse square root, as numbers: the
// rule computes by them, and fixtures are compared with them.

// CANS: Y and Z are polynomials of B/s, s being an upper bound of B's
// eigenvalues and at least kCansLeastSize. Each step takes P = Z·Y, whose
// eigenvalues go to 1, Y to bY + aYP and Z to bZ + aPZ, so that Z ends as
// (B/s)^(-1/2).
struct CansStep {
  double b = 0;
  double a = 0;
};
std::span<const CansStep> cans_steps();
inline constexpr double kCansLeastSize = 1e-12;

// Shampoo's options: their facts, presets, and the values in force as numbers.
//
//   ShampooOptions options({{"preset", "meta"}, {"merge", "2"}});
//   options.beta2, options.power(2, 0).p
//
// Immutable; standard library only.

enum class Grafting { kNone, kSgd, kAdagrad, kRmsprop, kAdam };

const std::vector<OptionFact>& shampoo_option_facts();
const std::vector<Preset>& shampoo_presets();

struct ShampooOptions {
  // UsageError for what options_in_force refuses, for a first refresh before
  // a period has passed, for a decay of 1 where that keeps nothing, for an
  // exponent that the root cannot give, for damping of a pseudo-inverse, and
  // for parts of the classic momentum without it.
  explicit ShampooOptions(const RuleOptions& given);

  RuleOptions in_force;
  RefreshOptions refresh;
  std::optional<int64_t> start_step;  // the first refresh; none: never
  BlockingOptions blocking;
  RootOptions root;
  // None: 1/(2·order). One: of all axes. More: one per axis, for tensors of as
  // many axes; the others have 1/(2·order).
  std::vector<InversePower> exponents;

  double learning_rate;
  double weight_decay;
  std::string decay_form;
  double beta1;
  double beta2;
  double beta3;
  bool bias_correction;
  bool drop_weighting;  // a gradient enters factors with weight 1
  bool kl;              // … after the roots of all other axes
  bool trace_scaling;   // factors are divided by the root of their trace
  // The momentum of the direction, decay included: it keeps so much of itself
  // and takes 1 - dampening of the direction.
  double classic_momentum;
  double classic_dampening;
  bool classic_nesterov;
  Grafting grafting;
  double grafting_beta2;
  double grafting_epsilon;
  bool splits_products;  // of statistics and directions

  // The power for an axis of a tensor that has so many after merging; q is 0 if
  // it has no factors. UsageError if the root cannot give it.
  InversePower power(int order, int axis) const;
  // False: the axis has no factors, because no root would ever be used.
  bool has_factor(int order, int axis) const {
    return start_step.has_value() && power(order, axis).q != 0;
  }
  bool filters() const { return beta1 != 0; }
  bool has_momentum() const { return classic_momentum != 0; }
  // True if the grafting method has a second moment.
  bool grafts_from_moment() const {
    return grafting != Grafting::kNone && grafting != Grafting::kSgd;
  }
};

}  // namespace canzona
