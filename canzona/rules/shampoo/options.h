// Shampoo's options: their facts, presets, and the values in force as numbers.
//
//   ShampooOptions options({{"preset", "meta"}, {"merge", "2"}});
//   options.beta2, options.power(2, 0).p
//
// Immutable; standard library only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "canzona/rules/facts.h"
#include "canzona/rules/options.h"
#include "canzona/rules/shampoo/blocks.h"
#include "canzona/rules/shampoo/root_options.h"

namespace canzona {

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
  // Of the direction, decay included: the momentum keeps so much of itself and
  // takes 1 - dampening of the direction.
  double classic_momentum;
  double classic_dampening;
  bool classic_nesterov;
  Grafting grafting;
  double grafting_beta2;
  double grafting_epsilon;
  bool splits_products;  // of statistics and directions

  // Of an axis of a tensor that has so many after merging; q is 0 if it has no
  // factors. UsageError if the root cannot give it.
  InversePower power(int order, int axis) const;
  // False: the axis has no factors, because no root would ever be used.
  bool has_factor(int order, int axis) const {
    return start_step.has_value() && power(order, axis).q != 0;
  }
  bool filters() const { return beta1 != 0; }
  bool has_momentum() const { return classic_momentum != 0; }
  // Whether the grafting method has a second moment.
  bool grafts_from_moment() const {
    return grafting != Grafting::kNone && grafting != Grafting::kSgd;
  }
};

}  // namespace canzona
