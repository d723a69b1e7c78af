// Every plan gives the result that a single rank would compute.
#include <gtest/gtest.h>

#include <algorithm>

#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_reference.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime::reference_test {
namespace {

struct Case {
  PlanWish plan = {};
  GradientKind gradients = GradientKind::kRandom;
  double clip_norm = 0;
  RuntimeOptions runtime = {};
};

using Digests = std::pair<std::string, std::string>;
constexpr int kSteps = 7;  // including refreshes
constexpr double kRate = 0.01, kAdamwRate = 0.003;

Digests by_reference(const Case& wanted) {
  const Plan plan = small_plan(toy_moe(), wanted.plan);
  Reference reference(plan, wanted.gradients, wanted.runtime);
  for (int i = 0; i < kSteps; ++i)
    reference.step({.learning_rate = kRate,
                    .adamw_learning_rate = kAdamwRate,
                    .clip_norm = wanted.clip_norm});
  return {reference.parameter_digest(), reference.state_digest()};
}

Digests by_ranks(const Case& wanted, const std::string& strategy) {
  PlanWish wish = wanted.plan;
  wish.strategy = strategy;
  const TrialResult result = run_trial({.plan = small_plan(toy_moe(), wish),
                                        .gradients = wanted.gradients,
                                        .steps = kSteps,
                                        .learning_rate = kRate,
                                        .adamw_learning_rate = kAdamwRate,
                                        .clip_norm = wanted.clip_norm,
                                        .options = wanted.runtime});
  return {result.parameters, result.states};
}

void expect_reference(const Case& wanted) {
  const Digests expected = by_reference(wanted);
  for (const std::string& strategy : strategy_names())
    EXPECT_EQ(by_ranks(wanted, strategy), expected)
        << strategy << " on " << wanted.plan.mesh << " with "
        << wanted.plan.rule;
}

class OneRankAgrees : public testing::TestWithParam<std::string> {};

TEST_P(OneRankAgrees, AddsByTheTreeOnEveryDp) {
  for (const std::string mesh :
       {"dp=1", "dp=3", "tp=2", "dp=5,tp=2", "dp=7", "dp=8", "dp=2,ep=2,tp=2"})
    expect_reference(
        {{.mesh = mesh, .rule = GetParam(), .options = quick(GetParam())}});
}

INSTANTIATE_TEST_SUITE_P(Reference, OneRankAgrees,
                         testing::Values("muon", "shampoo", "soap", "adamw",
                                         "nsgd"),
                         [](const auto& of) { return of.param; });

TEST(Reference, PhasesSpreadRefreshes) {
  for (const std::string rule : {"shampoo", "soap"}) {
    RuleOptions options = quick(rule);
    options["phases"] = "2";
    expect_reference({{.mesh = "dp=2,tp=2", .rule = rule, .options = options}});
  }
}

// With a state beside the shard, decay by signs, and norms of whole tensors.
TEST(Reference, VariantsOfRules) {
  const std::vector<std::pair<std::string, RuleOptions>> variants = {
      {"muon", {{"cautious_decay", "on"}}},
      {"muon", {{"preset", "nanochat"}}},
      {"muon", {{"preset", "normuon"}}},
      {"muon",
       {{"precision", "fp32"},
        {"second_moment", "adamuon"},
        {"renorm", "on"},
        {"constraint", "hyperball"},
        {"cautious_decay", "on"}}},
      {"muon",
       {{"precision", "fp32"},
        {"second_moment", "namo"},
        {"equilibrate", "rows"},
        {"constraint", "hyperball"},
        {"constraint_radius", "3"}}},
      {"shampoo",
       {{"precondition_frequency", "3"},
        {"classic_momentum", "0.9"},
        {"classic_nesterov", "on"},
        {"kl", "on"}}},
      {"shampoo",
       {{"precondition_frequency", "3"},
        {"exponent", "0,0.5"},
        {"root", "cans"},
        {"classic_momentum", "0.9"}}},
      {"soap",
       {{"precondition_frequency", "3"},
        {"ignored_dims", "0"},
        {"normalize_grads", "on"},
        {"max_update_rms", "0.5"}}},
  };
  for (const auto& [rule, options] : variants)
    for (const std::string mesh : {"dp=3", "dp=2,tp=2"})
      expect_reference({{.mesh = mesh, .rule = rule, .options = options}});
}

TEST(Reference, EverySplit) {
  for (const std::string split :
       {"qkv", "head", "qkv,gate-up", "output-head", "head,output-head"})
    expect_reference({{.mesh = "dp=2,tp=2", .split = split}});
}

TEST(Reference, HeadsOfColumns) {
  for (const std::string preset :
       {"normuon", "nanochat", "nvidia-namo", "nvidia-adamuon", "muonh"})
    for (const std::string mesh : {"dp=3", "dp=2,tp=4"})
      expect_reference({{.mesh = mesh,
                         .rule = "muon",
                         .options = {{"preset", preset}},
                         .split = "head,output-head"}});
}

TEST(Reference, ClippingAndExactSums) {
  expect_reference({{.mesh = "dp=2,tp=2"}, GradientKind::kExact, 1e-6});
  expect_reference({{.mesh = "dp=4"}, GradientKind::kRandom, 1e-3});
}

TEST(Reference, NarrowWiresAndParameters) {
  RuntimeOptions narrow;
  narrow.wire = DType::kBf16;
  expect_reference({.plan = {.mesh = "dp=3"}, .runtime = narrow});
  expect_reference({{.mesh = "dp=2,tp=2", .parameters = DType::kBf16}});
}

TEST(Reference, GroupsOfTensorsDecayAndLearnApart) {
  RuntimeOptions groups;
  groups.groups = {{"*norm*", 0.0, 2.0}, {"*fc1*", 0.3, 0.5}};
  expect_reference({.plan = {.mesh = "dp=2,tp=2"}, .runtime = groups});
}

// The first step of AdamW moves every weight by its rate, against the sign of
// the gradient, after decay: with the plan's options for matrices, and with its
// own for all else.
TEST(Reference, AdamwUpdatesMatricesByThePlansNumbersAndAllElseByItsOwn) {
  constexpr double kMatrixDecay = 2, kOtherDecay = 7;
  const auto expect_step = [&](double matrix_rate, double other_rate) {
    const Model model = toy_model();
    std::vector<std::vector<float>> before(model.tensors.size());
    Trial trial{.plan = small_plan(model, {.rule = "adamw",
                                           .options = {{"weight_decay", "2"}}}),
                .steps = 1,
                .learning_rate = matrix_rate,
                .adamw_learning_rate = other_rate,
                .options = {.adamw = {{"weight_decay", "7"}}}};
    const auto values = [](Runtime& runtime, size_t t) {
      const auto tensor = static_cast<int32_t>(t);
      std::vector<float> all(
          static_cast<size_t>(runtime.shard_elements(tensor)));
      runtime.get_parameter(tensor, all);
      return all;
    };
    trial.poison = [](Runtime&, int64_t, int32_t, std::span<float> gradient) {
      std::ranges::fill(gradient, 1.0F);
    };
    trial.set_parameters = [&](Runtime& runtime) {
      for (size_t t = 0; t < before.size(); ++t) before[t] = values(runtime, t);
    };
    trial.at_end = [&](Runtime& runtime) {
      for (size_t t = 0; t < before.size(); ++t) {
        const std::string& name = model.tensors[t].name;
        const bool other =
            name == "embedding" || name == "head" || name.ends_with("norm");
        const double rate = other ? other_rate : matrix_rate;
        const double decay = other ? kOtherDecay : kMatrixDecay;
        const std::vector<float> after = values(runtime, t);
        for (size_t i = 0; i < after.size(); ++i)
          ASSERT_NEAR(after[i], before[t][i] * (1 - rate * decay) - rate, 1e-6)
              << name << " " << i;
      }
    };
    run_trial(trial);
  };
  expect_step(0.01, 0.03);
  expect_step(0.01, 0);
  expect_step(0, 0.03);
}

// The reference itself reveals a different order of additions.
TEST(Reference, DependsOnTheNumberOfHomes) {
  EXPECT_NE(by_reference({{.mesh = "dp=2"}}), by_reference({{.mesh = "dp=4"}}));
  const GradientKind exact = GradientKind::kExact;
  EXPECT_EQ(by_reference({{.mesh = "dp=2"}, exact}),
            by_reference({{.mesh = "dp=4"}, exact}));
}

}  // namespace
}  // namespace canzona::runtime::reference_test
