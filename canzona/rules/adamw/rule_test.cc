#include <gmock/gmock.h>

#include <cmath>

#include "canzona/rules/rule.h"
#include "canzona/rules/test_steps.h"

namespace canzona::rules::adamw_rule_test {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;

TestTensor<double> tensor(const RuleOptions& options, int64_t rows,
                          int64_t cols) {
  return {make_rule("adamw", options, DType::kFp64),
          {rows, cols},
          known_weights(rows, cols)};
}

TEST(AdamWRule, TakesTheKnownSteps) {
  const auto engine = make_cpu_engine();
  auto t = tensor({{"beta2", "0.95"}, {"weight_decay", "0.1"}}, 2, 3);
  const std::vector<std::vector<double>> expected = {
      {-7.332031262500e-01, 4.835937502500e-01, 1.562499937500e-02,
       -1.562499958333e-02, -4.992187500000e-01, 7.644531245833e-01},
      {-7.407043988553e-01, 4.798281153764e-01, 1.174881857618e-02,
       -1.258757030462e-02, -5.099224705253e-01, 7.624362981770e-01},
      {-7.374674497378e-01, 4.735731284049e-01, 1.799244234803e-02,
       -1.411415832453e-02, -5.163475073464e-01, 7.675994887671e-01}};
  for (const auto& weights : expected) {
    t.step(*engine, known_gradient(2, 3, t.steps + 1), 0x1p-6);
    EXPECT_THAT(t.weights, Pointwise(DoubleNear(1e-11), weights));
  }
}

// Epsilon is added before or after the bias correction.
TEST(AdamWRule, PlacesEpsilonAsAsked) {
  const auto engine = make_cpu_engine();
  for (const bool corrected : {true, false}) {
    auto t = tensor({{"epsilon", "0.5"},
                     {"beta1", "0.5"},
                     {"beta2", "0.75"},
                     {"weight_decay", "0"},
                     {"epsilon_mode", corrected ? "corrected" : "uncorrected"}},
                    1, 1);
    const double start = t.weights[0];
    t.step(*engine, {2}, 1);
    const double m = 1, v = 1, c1 = 0.5, c2 = 0.25;
    const double expected = corrected
                                ? m / c1 / (std::sqrt(v / c2) + 0.5)
                                : std::sqrt(c2) / c1 * m / (std::sqrt(v) + 0.5);
    EXPECT_NEAR(t.weights[0], start - expected, 1e-15);
  }
}

TEST(AdamWRule, StepsWholeTensorsAlike) {
  const auto engine = make_cpu_engine();
  for (const char* form : {"decoupled", "l2"}) {
    auto staged = tensor({{"decay_form", form}}, 3, 3);
    auto whole = tensor({{"decay_form", form}}, 3, 3);
    for (int64_t t = 1; t <= 3; ++t) {
      staged.step(*engine, known_gradient(3, 3, t), 0.1);
      whole.step_whole(*engine, known_gradient(3, 3, t), 0.1);
    }
    EXPECT_EQ(staged.weights, whole.weights) << form;
  }
}

TEST(AdamWRule, AddsDecayToTheGradientIfAsked) {
  const auto engine = make_cpu_engine();
  auto l2 = tensor({{"decay_form", "l2"}, {"weight_decay", "0.5"}}, 2, 3);
  auto plain = tensor({{"weight_decay", "0"}}, 2, 3);
  auto grad = known_gradient(2, 3, 1);
  l2.step(*engine, grad, 0.1);
  for (size_t i = 0; i < grad.size(); ++i) grad[i] += 0.5 * plain.weights[i];
  plain.step(*engine, grad, 0.1);
  EXPECT_EQ(l2.weights, plain.weights);
}

TEST(AdamWRule, OnlyDecaysWithoutAGradient) {
  const auto engine = make_cpu_engine();
  auto t = tensor({{"weight_decay", "0.25"}}, 2, 3);
  const auto before = t.weights;
  t.step(*engine, std::vector<double>(6), 0.5);
  for (size_t i = 0; i < 6; ++i)
    EXPECT_EQ(t.weights[i], before[i] * (1 - 0.125));
}

}  // namespace
}  // namespace canzona::rules::adamw_rule_test
