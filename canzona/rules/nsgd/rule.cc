// Normalised SGD in three stages.
#include "canzona/rules/rule.h"

#include <cmath>

#include "canzona/rules/nsgd/facts.h"
#include "canzona/rules/options.h"
#include "canzona/rules/runs.h"

namespace canzona::rules {
namespace {

class NsgdRule final : public RuleOf<NsgdFacts> {
 public:
  NsgdRule(const RuleOptions& options, DType dtype)
      : RuleOf(options, dtype),
        keep_(real_option(facts_.options(), "momentum")),
        decay_{"decoupled", "before",
               real_option(facts_.options(), "weight_decay"),
               real_option(facts_.options(), "learning_rate")} {}

  void prepare(Engine& engine, const Step&, const Shard& shard,
               std::span<const Run> fields) const override {
    engine.momentum({.grad = shard.grad,
                     .momentum = shard.states[0],
                     .out = fields[0],
                     .blend = {.keep = keep_, .add = 1 - keep_}},
                    shard.count);
  }

  void transform(Engine& engine, const Step&,
                 const Batch& batch) const override {
    const int64_t size = num_elements(batch.dims);
    for (int64_t i = 0; i < batch.count; ++i) {
      const ConstMatrices in =
          as_row(advanced(batch.fields[0], i * size), size);
      const Matrices out = as_row(advanced(batch.out, i * size), size);
      double norm[1] = {};
      engine.norms(in, norm);
      const double scale =
          norm[0] == 0 ? 0 : std::sqrt(static_cast<double>(size)) / norm[0];
      engine.axpby(out, scale, in, 0);
    }
  }

  void apply(Engine& engine, const Step& step, const Shard& shard,
             ConstRun update) const override {
    engine.apply(shard.weights, update, apply_coefficients(decay_, step, 1),
                 shard.count, shard.rounded);
  }

 private:
  double keep_;
  DecayOptions decay_;
};

}  // namespace

std::unique_ptr<Rule> make_nsgd_rule(const RuleOptions& options, DType dtype) {
  return std::make_unique<NsgdRule>(options, dtype);
}

}  // namespace canzona::rules
