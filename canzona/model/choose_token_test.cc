#include "canzona/model/token_decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "canzona/base/error.h"

namespace canzona::model::choose_token_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const std::vector<float> kLogits = {0.5F, 2, -1, 2, 0};

TEST(ChooseToken, TakesTheLargestOfEqualsTheFirst) {
  EXPECT_EQ(choose_token(kLogits, {}, 0.99), 1);
}

// A uniform grid of chances selects each token as often as softmax says.
std::vector<int> counts_of(const TokenChoice& choice, int chances) {
  std::vector<int> counts(kLogits.size());
  for (int i = 0; i < chances; ++i)
    ++counts[static_cast<size_t>(
        choose_token(kLogits, choice, (i + 0.5) / chances))];
  return counts;
}

TEST(ChooseToken, FollowsTheSharesOfSoftmax) {
  constexpr double kTemperature = 0.7;
  double sum = 0;
  for (const float logit : kLogits) sum += std::exp(logit / kTemperature);
  const std::vector<int> counts =
      counts_of({.temperature = kTemperature}, 10'000);
  for (size_t i = 0; i < kLogits.size(); ++i)
    EXPECT_NEAR(counts[i], 10'000 * std::exp(kLogits[i] / kTemperature) / sum,
                1.5);
}

TEST(ChooseToken, TopKLeavesTheOthersOut) {
  const std::vector<int> counts =
      counts_of({.temperature = 1, .top_k = 3}, 1'000);
  EXPECT_GT(counts[0], 0);
  EXPECT_EQ(counts[2], 0);
  EXPECT_EQ(counts[4], 0);
  const std::vector<int> two = counts_of({.temperature = 1, .top_k = 2}, 1'000);
  EXPECT_EQ(two, (std::vector<int>{0, 500, 0, 500, 0}));
  EXPECT_EQ(counts_of({.temperature = 1, .top_k = 1}, 10)[1], 10);
  EXPECT_EQ(counts_of({.temperature = 1, .top_k = 99}, 1'000),
            counts_of({.temperature = 1}, 1'000));
}

TEST(ChooseToken, ColdIsGreedyAndLargeLogitsDoNotOverflow) {
  EXPECT_EQ(choose_token(std::vector<float>{3e38F, -3e38F},
                         {.temperature = 1e-3}, 0.999),
            0);
}

TEST(ChooseToken, RefusesLogitsOfWhichOneIsNotFinite) {
  for (const float broken : {kNan, kInfinity, -kInfinity})
    EXPECT_THROW(choose_token(std::vector<float>{1, broken}, {}, 0),
                 NumericalError);
}

}  // namespace
}  // namespace canzona::model::choose_token_test
