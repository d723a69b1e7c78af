// AdamW is element-wise, so everything happens on the shard.
#include "canzona/rules/rule.h"

#include <cmath>

#include "canzona/base/check.h"
#include "canzona/rules/adamw/facts.h"
#include "canzona/rules/options.h"

namespace canzona::rules {
namespace {

class AdamWRule final : public RuleOf<AdamWFacts> {
 public:
  AdamWRule(const RuleOptions& options, DType dtype)
      : RuleOf(options, dtype),
        beta1_(real_option(facts_.options(), "beta1")),
        beta2_(real_option(facts_.options(), "beta2")),
        epsilon_(real_option(facts_.options(), "epsilon")),
        corrected_(facts_.options().at("epsilon_mode") == "corrected"),
        decay_{facts_.options().at("decay_form"), "before",
               real_option(facts_.options(), "weight_decay"),
               real_option(facts_.options(), "learning_rate")} {}

  void prepare(Engine&, const Step&, const Shard&,
               std::span<const Run>) const override {
    throw InternalError("adamw sends nothing to an owner");
  }
  void transform(Engine&, const Step&, const Batch&) const override {
    throw InternalError("adamw has no owner");
  }

  void apply(Engine& engine, const Step& step, const Shard& shard,
             ConstRun) const override {
    step_whole(engine, step, {.dims = shard.whole, .shards = {&shard, 1}});
  }

  void step_whole(Engine& engine, const Step& step,
                  const WholeTensors& tensors) const override {
    const Arena::Scope scope(engine.arena());
    const double c1 = correction(beta1_, step.step);
    const double root = std::sqrt(correction(beta2_, step.step));
    const AdamCoefficients adam{.m_keep = beta1_,
                                .m_add = 1 - beta1_,
                                .v_keep = beta2_,
                                .v_add = 1 - beta2_,
                                .root_scale = corrected_ ? 1 / root : 1,
                                .epsilon = epsilon_};
    const double factor = (corrected_ ? 1 : root) / c1;
    const Apply apply = apply_coefficients(decay_, step, factor);
    // Collects the runs of one call without using the heap.
    constexpr size_t kAtOnce = 64;
    Engine::AdamRuns runs[kAtOnce];
    size_t filled = 0;
    for (const Shard& shard : tensors.shards) {
      runs[filled++] = {.grad = decayed_gradient(engine, shard),
                        .m = shard.states[0],
                        .v = shard.states[1],
                        .weights = shard.weights,
                        .count = shard.count,
                        .rounded = shard.rounded};
      if (filled < kAtOnce && &shard != &tensors.shards.back()) continue;
      engine.adam_apply({runs, filled}, adam, apply);
      filled = 0;
    }
  }

 private:
  // Returns the sum of the weights of an average of `step` terms.
  static double correction(double beta, int64_t step) {
    return beta == 1 ? 1 : 1 - std::pow(beta, static_cast<double>(step));
  }

  ConstRun decayed_gradient(Engine& engine, const Shard& shard) const {
    if (l2_factor(decay_) == 0) return shard.grad;
    const Run grad{engine.arena().take(shard.count * size_of(dtype_)), dtype_};
    engine.momentum({.grad = shard.grad,
                     .weights = shard.weights,
                     .l2 = l2_factor(decay_),
                     .out = grad},
                    shard.count);
    return grad;
  }

  double beta1_;
  double beta2_;
  double epsilon_;
  bool corrected_;
  DecayOptions decay_;
};

}  // namespace

std::unique_ptr<Rule> make_adamw_rule(const RuleOptions& options, DType dtype) {
  return std::make_unique<AdamWRule>(options, dtype);
}

}  // namespace canzona::rules
