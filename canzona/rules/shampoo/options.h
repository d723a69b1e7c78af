// Shampoo's options: their facts, presets, and the values in force as numbers.
//
//   ShampooOptions options({{"preset", "meta"}, {"merge", "2"}});
//   options.beta2, options.power(2).p
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
  // a period has passed, for a decay of 1 where that keeps nothing, and for an
  // exponent that the root cannot give.
  explicit ShampooOptions(const RuleOptions& given);

  RuleOptions in_force;
  RefreshOptions refresh;
  std::optional<int64_t> start_step;  // the first refresh; none: never
  BlockingOptions blocking;
  RootOptions root;
  std::optional<InversePower> exponent;  // none: 1/(2·order)

  double learning_rate;
  double weight_decay;
  std::string decay_form;
  double beta1;
  double beta2;
  double beta3;
  bool bias_correction;
  Grafting grafting;
  double grafting_beta2;
  double grafting_epsilon;
  bool splits_products;  // of statistics and directions

  // Of a tensor of so many axes after merging.
  InversePower power(int order) const;
  // False: no factors at all, because no root would ever be used.
  bool preconditions() const;
  bool filters() const { return beta1 != 0; }
  // Whether the grafting method has a second moment.
  bool grafts_from_moment() const {
    return grafting != Grafting::kNone && grafting != Grafting::kSgd;
  }
};

}  // namespace canzona
