#include "canzona/model/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "canzona/model/test_experts.h"

namespace canzona::model::experts_test {
namespace {

const std::vector<TrialSizes> kTrials = {
    {},
    {.shared = 1},
    {.shared = 2, .ffn = 3},
    {.choices = 1},
    {.choices = 4},
    {.experts = 7, .choices = 3, .length = 1, .sequences = 6},
    {.length = 1, .sequences = 1},
    {.experts = 1, .choices = 1, .hidden = 1, .ffn = 1, .length = 3},
    {.experts = 2, .hidden = 1, .length = 1, .sequences = 1},
    {.experts = 5, .hidden = 17, .ffn = 19, .length = 2},
};

// The first column of the router's rows decides, because every x has 1 there.
void send_all_to(ExpertTrial& trial, Numbers& x, std::vector<double> pull) {
  const auto hidden = static_cast<size_t>(trial.config.architecture.hidden);
  for (size_t i = 0; i < x.size(); i += hidden) x[i] = 1;
  auto& router = trial.parameters[trial.tensor("gate.weight")];
  for (size_t e = 0; e < pull.size(); ++e) router[e * hidden] += pull[e];
}

void expect_gradients(const ExpertTrial& trial, const Numbers& x) {
  const Numbers dy = random_numbers(8, trial.elements(), 1);
  const auto result = run_alone<double>(trial, x, dy);
  const ReferenceGradients right = differences(trial, x, dy);
  expect_near(result.dx, right.x, 1e-8, "x");
  for (const size_t i : trial.tensors()) {
    expect_near(result.gradients[i], right.parameters[i], 1e-8,
                trial.shapes.tensors[i].name);
  }
}

TEST(Experts, GiveWhatTheTokensChoose) {
  for (const TrialSizes& sizes : kTrials) {
    const ExpertTrial trial(sizes);
    const Numbers x = random_numbers(7, trial.elements(), 1);
    const ReferenceResult right = reference(trial, trial.parameters, x);
    const auto wide = run_alone<double>(trial, x, x);
    expect_near(wide.y, right.y, 1e-13, "y");
    EXPECT_NEAR(wide.balance, right.balance, 1e-13);
    const auto narrow = run_alone<float>(trial, x, x);
    expect_near(narrow.y, right.y, 2e-6, "y in fp32");
    EXPECT_NEAR(narrow.balance, right.balance, 1e-6);
  }
}

TEST(Experts, GradientsAreThoseOfDifferences) {
  for (const TrialSizes& sizes : kTrials) {
    const ExpertTrial trial(sizes);
    expect_gradients(trial, random_numbers(7, trial.elements(), 1));
  }
}

TEST(Experts, AllTokensMayGoToOneExpert) {
  for (const int64_t shared : {0, 1}) {
    ExpertTrial trial({.choices = 1, .shared = shared});
    Numbers x = random_numbers(7, trial.elements(), 0.3);
    send_all_to(trial, x, {0, 0, 9, 0});
    expect_gradients(trial, x);
    const auto result = run_alone<double>(trial, x, x);
    for (const char* name :
         {"experts.0.gate_up_proj.weight", "experts.3.down_proj.weight"})
      EXPECT_THAT(result.gradients[trial.tensor(name)], testing::Each(0.0));
    const auto chosen = trial.tensor("experts.2.down_proj.weight");
    EXPECT_THAT(result.gradients[chosen], testing::Each(testing::Ne(0.0)));
  }
}

TEST(Experts, OneMayBeChosenByNobody) {
  ExpertTrial trial({.experts = 5, .choices = 3});
  Numbers x = random_numbers(7, trial.elements(), 1);
  send_all_to(trial, x, {0, -20, 0, 0, 0});
  expect_gradients(trial, x);
  const auto result = run_alone<double>(trial, x, x);
  const auto idle = trial.tensor("experts.1.gate_up_proj.weight");
  EXPECT_THAT(result.gradients[idle], testing::Each(0.0));
  EXPECT_EQ(result.num_ready(idle), 1);
}

TEST(Experts, OfEqualOnesTheFirstAreChosen) {
  ExpertTrial trial({.experts = 6, .choices = 2});
  auto& router = trial.parameters[trial.tensor("gate.weight")];
  std::ranges::fill(router, 0.0);
  const Numbers x = random_numbers(7, trial.elements(), 1);
  const auto result = run_alone<double>(trial, x, x);
  expect_near(result.y, reference(trial, trial.parameters, x).y, 1e-13, "y");
  const auto third = trial.tensor("experts.2.down_proj.weight");
  EXPECT_THAT(result.gradients[third], testing::Each(0.0));
  EXPECT_NEAR(result.balance, trial.config.balance_coefficient, 1e-15);
}

TEST(Experts, AddToGradientsAndReportTheLast) {
  const ExpertTrial trial({.shared = 1});
  const Numbers x = random_numbers(7, trial.elements(), 1);
  const auto once = run_alone<double>(trial, x, x);
  const auto twice = run_alone<double>(trial, x, x, 2);
  for (const size_t i : trial.tensors()) {
    Numbers doubled = once.gradients[i];
    for (double& value : doubled) value *= 2;
    expect_near(twice.gradients[i], doubled, 1e-14, "gradient");
    EXPECT_EQ(twice.num_ready(i), 1) << trial.shapes.tensors[i].name;
  }
  EXPECT_EQ(twice.readies.size(), trial.tensors().size());
}

TEST(Experts, MayBeRecomputedWithoutTheirOutput) {
  const ExpertTrial trial({.shared = 1});
  const Numbers x = random_numbers(7, trial.elements(), 1);
  ExpertBench<double> kept(trial, {}), again(trial, {});
  Numbers y(x.size()), dx(x.size()), dx_again(x.size());
  kept.run(x, x, y, dx, Announce::kNothing);
  again.run(x, x, y, dx_again, Announce::kNothing, true);
  EXPECT_EQ(dx, dx_again);
  EXPECT_EQ(kept.weights().gradients, again.weights().gradients);
}

TEST(Experts, BalanceIsTheMeanOverSequences) {
  ExpertTrial both({.sequences = 2}), one({.sequences = 1});
  const Numbers x = random_numbers(7, both.elements(), 1);
  const auto middle = x.begin() + one.elements();
  const Numbers first(x.begin(), middle), second(middle, x.end());
  EXPECT_NEAR(run_alone<double>(both, x, x).balance,
              (run_alone<double>(one, first, first).balance +
               run_alone<double>(one, second, second).balance) /
                  2,
              1e-15);
}

}  // namespace
}  // namespace canzona::model::experts_test
