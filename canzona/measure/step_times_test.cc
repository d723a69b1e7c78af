#include "canzona/measure/step_times.h"

#include <gtest/gtest.h>

namespace canzona::measure::step_times_test {
namespace {

TEST(StepTimes, MeanIsOverAPeriodWhateverWasMeasured) {
  // Every third step is a refresh.
  const std::vector<double> seconds = {1, 10, 1, 1, 12, 1, 1, 11};
  const StepTimes times = summarize_steps(seconds, 2, 3);
  EXPECT_DOUBLE_EQ(times.median, 1);
  EXPECT_DOUBLE_EQ(times.mean, (1 + 1 + 11) / 3.0);
  EXPECT_DOUBLE_EQ(times.worst, 11);
  EXPECT_DOUBLE_EQ(times.spread, 11);
  EXPECT_TRUE(times.covers_period);
}

TEST(StepTimes, WithoutRefreshesTheMeanIsTheMedian) {
  const std::vector<double> seconds = {1, 2, 9};
  const StepTimes times = summarize_steps(seconds, 1, 1);
  EXPECT_DOUBLE_EQ(times.median, 2);
  EXPECT_DOUBLE_EQ(times.mean, 2);
  EXPECT_DOUBLE_EQ(times.worst, 2);
}

TEST(StepTimes, SaysWhenKindsOfStepsAreMissing) {
  const std::vector<double> seconds = {1, 2};
  EXPECT_FALSE(summarize_steps(seconds, 1, 3).covers_period);
  EXPECT_FALSE(summarize_steps({}, 1, 1).covers_period);
}

TEST(StepTimes, MedianOfAnEvenNumberIsInTheMiddle) {
  EXPECT_DOUBLE_EQ(median_of({4, 1, 3, 2}), 2.5);
  EXPECT_DOUBLE_EQ(median_of({}), 0);
}

TEST(StepTimes, TheSlowestRankCountsStepByStep) {
  EXPECT_EQ(slowest({{1, 5}, {2, 4}}), (std::vector<double>{2, 5}));
}

}  // namespace
}  // namespace canzona::measure::step_times_test
