// Shampoo's arithmetic runs at the owner on whole tensors; only the classic
// momentum and the weights are with the shard.
#include "canzona/rules/rule.h"

#include "canzona/base/check.h"
#include "canzona/rules/shampoo/batch_step.h"
#include "canzona/rules/shampoo/facts.h"
#include "canzona/rules/shampoo/helper.h"
#include "canzona/rules/together.h"

namespace canzona::rules {
namespace {

// Returns the decay term of the direction, as a multiple of the weights.
double decay_in_direction(const DecayOptions& decay, double learning_rate) {
  if (decay.form == "decoupled") return decay.weight_decay;
  const double peak = decay.peak_learning_rate;
  if (decay.form == "l2" || peak == 0) return 0;
  if (decay.form == "corrected")
    return decay.weight_decay * learning_rate / peak;
  CANZONA_CHECK(decay.form == "peak_independent", "decay form ", decay.form);
  return decay.weight_decay / peak;
}

class ShampooRule final : public RuleOf<ShampooFacts> {
 public:
  ShampooRule(const RuleOptions& given, DType dtype) : RuleOf(given, dtype) {
    const ShampooOptions& options = facts_.parsed();
    decay_.form = options.decay_form;
    decay_.weight_decay = options.weight_decay;
    decay_.peak_learning_rate = options.learning_rate;
  }

  void prepare(Engine& engine, const Step&, const Shard& shard,
               std::span<const Run> fields) const override {
    engine.momentum({.grad = shard.grad,
                     .weights = shard.weights,
                     .l2 = l2_factor(decay_),
                     .momentum = {},
                     .out = fields[0],
                     .blend = {}},
                    shard.count);
  }

  void transform(Engine& engine, const Step& step,
                 const Batch& batch) const override {
    const ShampooLayout layout(facts_.parsed(), batch.dims);
    if (layout.blocking().empty()) return;
    CANZONA_CHECK(batch.out.dtype == dtype_, "states of another type");
    const ProductsScope products(engine,
                                 products_of(facts_.parsed().splits_products));
    for_each_part(engine, batch.count, [&](int64_t begin, int64_t count) {
      BatchStep(engine, facts_.parsed(), layout, step.step, batch,
                {begin, count})
          .run();
    });
  }

  std::unique_ptr<SharedTransform> share(Engine& engine, Arena&,
                                         MatrixShape shape,
                                         const TeamSeat& seat) const override {
    if (!facts_.strips(shape).has_helper()) return nullptr;
    return help_shampoo(engine, facts_.parsed(), shape, seat, dtype_);
  }

  void apply(Engine& engine, const Step& step, const Shard& shard,
             ConstRun update) const override {
    if (facts_.parsed().has_momentum())
      return apply_momentum(engine, step, shard, update);
    engine.apply(shard.weights, update, apply_coefficients(decay_, step, 1.0),
                 shard.count, shard.rounded);
  }

 private:
  // With D the update plus its decay, B = momentum·B + share·D, and the weights
  // move by B or, with Nesterov, by share·D + momentum·B.
  void apply_momentum(Engine& engine, const Step& step, const Shard& shard,
                      ConstRun update) const {
    const ShampooOptions& options = facts_.parsed();
    const double rate = step.learning_rate;
    const double decay = decay_in_direction(decay_, rate);
    const double share = 1 - options.classic_dampening;
    const Run momentum = shard.states[0];
    engine.momentum({.grad = update,
                     .weights = shard.weights,
                     .l2 = decay,
                     .momentum = momentum,
                     .out = {},
                     .blend = {.keep = options.classic_momentum, .add = share}},
                    shard.count);
    double from_momentum = rate;
    if (options.classic_nesterov) {
      engine.apply(
          shard.weights, update,
          {.keep_before = 1 - rate * share * decay, .step = rate * share},
          shard.count);
      from_momentum *= options.classic_momentum;
    }
    engine.apply(shard.weights, momentum, {.step = from_momentum}, shard.count,
                 shard.rounded);
  }

  DecayOptions decay_;
};

}  // namespace

std::unique_ptr<Rule> make_shampoo_rule(const RuleOptions& options,
                                        DType dtype) {
  return std::make_unique<ShampooRule>(options, dtype);
}

}  // namespace canzona::rules
