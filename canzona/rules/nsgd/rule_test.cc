#include <gtest/gtest.h>

#include <cmath>

#include "canzona/rules/test_steps.h"

namespace canzona::rules::nsgd_rule_test {
namespace {

TEST(NsgdRule, MovesEveryMatrixByTheLearningRate) {
  const auto engine = make_cpu_engine();
  for (double scale : {1e-30, 1.0, 1e30}) {
    TestTensor<float> tensor(
        make_rule("nsgd", {{"weight_decay", "0"}}, DType::kFp32), {2, 3},
        std::vector<float>(6));
    std::vector<float> grad;
    for (double g : known_gradient(2, 3, 1))
      grad.push_back(static_cast<float>(g * scale));
    tensor.step(*engine, grad, 0.5);
    double squares = 0;
    for (float w : tensor.weights) squares += double(w) * double(w);
    EXPECT_NEAR(std::sqrt(squares / 6), 0.5, 1e-6) << scale;
    EXPECT_LT(tensor.weights[1] * grad[1], 0) << "downhill";
  }
}

TEST(NsgdRule, StandsStillWithoutAGradient) {
  const auto engine = make_cpu_engine();
  TestTensor<double> tensor(
      make_rule("nsgd", {{"weight_decay", "0"}}, DType::kFp64), {2, 2},
      {1, 2, 3, 4});
  tensor.step(*engine, {0, 0, 0, 0}, 0.5);
  EXPECT_EQ(tensor.weights, (std::vector<double>{1, 2, 3, 4}));
}

}  // namespace
}  // namespace canzona::rules::nsgd_rule_test
