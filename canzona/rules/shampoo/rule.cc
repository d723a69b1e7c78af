// Shampoo's arithmetic: all of it at the owner, on whole tensors.
#include "canzona/rules/rule.h"

#include "canzona/base/check.h"
#include "canzona/rules/products_scope.h"
#include "canzona/rules/shampoo/batch_step.h"
#include "canzona/rules/shampoo/facts.h"
#include "canzona/rules/together.h"

namespace canzona {
namespace {

class ShampooRule final : public Rule {
 public:
  ShampooRule(const RuleOptions& given, DType dtype)
      : facts_(given), dtype_(dtype) {
    const ShampooOptions& options = facts_.parsed();
    decay_.form = options.decay_form;
    decay_.weight_decay = options.weight_decay;
    decay_.peak_learning_rate = options.learning_rate;
  }

  const RuleFacts& facts() const override { return facts_; }
  DType dtype() const override { return dtype_; }

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

  void apply(Engine& engine, const Step& step, const Shard& shard,
             ConstRun update) const override {
    engine.apply(shard.weights, update, apply_coefficients(decay_, step, 1.0),
                 shard.count, shard.rounded);
  }

 private:
  ShampooFacts facts_;
  DType dtype_;
  DecayOptions decay_;
};

}  // namespace

std::unique_ptr<Rule> make_shampoo_rule(const RuleOptions& options,
                                        DType dtype) {
  return std::make_unique<ShampooRule>(options, dtype);
}

}  // namespace canzona
