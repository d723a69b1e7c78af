// Many ranks against one machine: gradients added by the tree of design, whole
// tensors updated by the rule alone. Shares no code with the runtime but the
// rules themselves and the digest.
#include <gtest/gtest.h>

#include "canzona/rules/local_optimizer.h"
#include "canzona/runtime/test_plans.h"
#include "canzona/runtime/test_trial.h"

namespace canzona {
namespace {

using Values = std::vector<float>;

// Neighbours first; an odd one is carried up.
Values tree_of(std::vector<Values> terms) {
  while (terms.size() > 1) {
    std::vector<Values> sums;
    for (size_t i = 0; i < terms.size(); i += 2) {
      sums.push_back(terms[i]);
      if (i + 1 == terms.size()) continue;
      for (size_t e = 0; e < terms[i].size(); ++e)
        sums.back()[e] = terms[i][e] + terms[i + 1][e];
    }
    terms = std::move(sums);
  }
  return terms[0];
}

class OneMachine {
 public:
  OneMachine(const Plan& plan, Gradients family)
      : plan_(plan), family_(family) {
    const size_t n = plan.model.tensors.size();
    weights_.resize(n);
    gradients_.resize(n);
    std::vector<LocalOptimizer::Tensor> matrices, others;
    for (size_t t = 0; t < n; ++t) {
      const Tensor& tensor = plan.model.tensors[t];
      const uint64_t seed = name_seed(tensor.name);
      for (int64_t i = 0; i < tensor.elements(); ++i)
        weights_[t].push_back(uniform_at(seed, static_cast<uint64_t>(i)) *
                              0.125F);
      gradients_[t].resize(weights_[t].size());
      (tensor.matrix_rule ? matrices : others)
          .push_back({tensor.name,
                      {tensor.rows(), tensor.cols()},
                      run_of(weights_[t].data()),
                      run_of(static_cast<const float*>(gradients_[t].data()))});
    }
    rule_ = std::make_unique<LocalOptimizer>(
        make_rule(plan.rule, plan.rule_options, DType::kFp32), matrices,
        lanes_);
    adamw_ = std::make_unique<LocalOptimizer>(
        make_rule("adamw", {}, DType::kFp32), others, lanes_);
  }

  void step(int64_t number, double learning_rate) {
    const auto factor = static_cast<float>(gradient_factor(plan_, family_));
    for (size_t t = 0; t < weights_.size(); ++t) {
      Values sum = reduced(t, number);
      for (size_t e = 0; e < sum.size(); ++e)
        gradients_[t][e] = sum[e] * factor;
    }
    ASSERT_TRUE(rule_->step(learning_rate));
    ASSERT_TRUE(adamw_->step(learning_rate));
  }

  std::string digest() const {
    LogicalDigest digest;
    for (size_t t = 0; t < weights_.size(); ++t)
      digest.add(name_seed(plan_.model.tensors[t].name), 0,
                 std::span<const float>(weights_[t]));
    return digest.text();
  }

 private:
  Values reduced(size_t t, int64_t step) const {
    const int32_t homes = plan_.buffer_of(static_cast<int32_t>(t)).num_homes;
    const uint64_t seed = name_seed(plan_.model.tensors[t].name) + 1;
    std::vector<Values> terms;
    for (int32_t h = 0; h < homes; ++h) {
      Values& term = terms.emplace_back();
      for (size_t i = 0; i < weights_[t].size(); ++i)
        term.push_back(gradient_at(family_, seed, step, h, homes,
                                   static_cast<int64_t>(i)));
    }
    return tree_of(std::move(terms));
  }

  const Plan& plan_;
  Gradients family_;
  Lanes lanes_{1, [] { return make_cpu_engine(); }};
  std::vector<Values> weights_, gradients_;
  std::unique_ptr<LocalOptimizer> rule_, adamw_;
};

class OneMachineAgrees : public testing::TestWithParam<std::string> {};

TEST_P(OneMachineAgrees, WithRandomGradientsOnEveryDp) {
  for (const std::string mesh : {"dp=1", "dp=2,tp=2", "dp=3", "dp=5,tp=2",
                                 "dp=7", "dp=8", "dp=2,ep=2,tp=2"}) {
    SCOPED_TRACE(mesh);
    const int steps = 7;  // refreshes among them
    const Plan plan = small_plan(
        toy_moe(),
        {.mesh = mesh, .rule = GetParam(), .options = quick(GetParam())});
    OneMachine machine(plan, Gradients::kRandom);
    for (int s = 1; s <= steps; ++s) machine.step(s, 0.01);
    const TrialResult result = run_trial(
        {.plan = plan, .gradients = Gradients::kRandom, .steps = steps});
    EXPECT_EQ(result.parameters, machine.digest());
  }
}

INSTANTIATE_TEST_SUITE_P(Runtime, OneMachineAgrees,
                         testing::Values("muon", "shampoo", "soap", "nsgd"),
                         [](const auto& of) { return of.param; });

}  // namespace
}  // namespace canzona
