// Rows that a step scales after its updates, wherever they are stored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime::row_factors_test {
namespace {

// Every third tensor's rows, by factors that are no powers of two.
std::vector<RowFactors> factors_of(const Model& model) {
  std::vector<RowFactors> all;
  for (int32_t t = 0; t < std::ssize(model.tensors); t += 3) {
    RowFactors rows{t, {}};
    for (int64_t i = 0; i < model.tensors[index(t)].rows(); ++i)
      rows.factors.push_back(i % 4 == 1 ? 1.0F
                                        : 1 / (1.1F + static_cast<float>(i)));
    all.push_back(rows);
  }
  return all;
}

using Wanted = std::map<int32_t, std::vector<float>>;

// The whole tensors of a run on one rank.
Wanted trained(Trial trial) {
  Wanted whole;
  trial.at_end = [&](Runtime& runtime) {
    for (int32_t t = 0; t < std::ssize(runtime.plan().model.tensors); ++t) {
      whole[t].resize(index(runtime.shard_elements(t)));
      runtime.get_parameter(t, whole[t]);
    }
  };
  run_trial(trial);
  return whole;
}

// After one step, weights are those of a step without factors, times these.
TEST(RowFactors, MultiplyWhatTheStepHasUpdated) {
  const Model model = toy_moe();
  for (const std::string rule : {"muon", "adamw", "soap"}) {
    Trial trial{
        .plan = small_plan(model, {.rule = rule, .options = quick(rule)}),
        .gradients = GradientKind::kRandom,
        .steps = 1};
    Wanted wanted = trained(trial);
    trial.row_factors = factors_of(model);
    for (const RowFactors& rows : trial.row_factors) {
      std::vector<float>& values = wanted[rows.tensor];
      const size_t cols = values.size() / rows.factors.size();
      for (size_t i = 0; i < values.size(); ++i)
        values[i] *= rows.factors[i / cols];
    }
    EXPECT_EQ(trained(trial), wanted) << rule;
  }
}

class OfRules : public testing::TestWithParam<std::string> {};

TEST_P(OfRules, HaveTheSameBitsOnEveryPlan) {
  const Model model = toy_moe();
  for (const DType dtype : {DType::kFp32, DType::kBf16}) {
    std::set<std::pair<std::string, std::string>> seen;
    const auto run = [&](PlanWish wish) {
      SCOPED_TRACE(cat(wish.mesh, " ", wish.strategy, " ", wish.zero));
      wish.rule = GetParam();
      wish.options = quick(wish.rule);
      wish.parameters = dtype;
      Trial trial{.plan = small_plan(model, wish)};
      trial.row_factors = factors_of(model);
      const TrialResult result = run_trial(trial);
      seen.emplace(result.parameters, result.states);
      ASSERT_EQ(seen.size(), 1U);
    };
    for (const std::string& mesh : many_meshes()) run({.mesh = mesh});
    for (const std::string strategy : {"replicated", "layerwise", "contiguous"})
      run({.mesh = "dp=4", .strategy = strategy});
    run({.mesh = "tp=2", .strategy = "megatron"});
    for (const std::string zero : {"zero2", "zero3", "hier:2", "replica:2"})
      run({.mesh = "dp=4,tp=2", .zero = zero});
    // Without factors the bits are others.
    const TrialResult plain =
        run_trial({.plan = small_plan(model, {.rule = GetParam(),
                                              .options = quick(GetParam()),
                                              .parameters = dtype})});
    EXPECT_NE(plain.parameters, seen.begin()->first);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, OfRules,
                         testing::Values("muon", "muon_nanochat", "adamw",
                                         "soap"),
                         [](const auto& rule) { return rule.param; });

TEST(RowFactors, LeaveFrozenTensorsAlone) {
  Model model = toy_moe();
  freeze(model, {"*"});
  const Trial plain{.plan = small_plan(model, {.mesh = "dp=2"})};
  Trial trial = plain;
  trial.row_factors = factors_of(model);
  EXPECT_EQ(run_trial(trial).parameters, run_trial(plain).parameters);
}

TEST(RowFactors, MustBeOneForEveryRow) {
  const Model model = toy_moe();
  Trial trial{.plan = small_plan(model, {})};
  trial.row_factors = {{1, {0.5F}}};
  EXPECT_THAT([&] { run_trial(trial); },
              testing::ThrowsMessage<UsageError>(
                  testing::AllOf(testing::HasSubstr(model.tensors[1].name),
                                 testing::HasSubstr("1 row factors"))));
}

}  // namespace
}  // namespace canzona::runtime::row_factors_test
