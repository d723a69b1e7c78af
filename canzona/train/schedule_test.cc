#include "canzona/train/config.h"

#include <gmock/gmock.h>

namespace canzona::train::schedule_test {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

std::vector<double> factors(int64_t steps, const ScheduleSettings& settings) {
  std::vector<double> all;
  for (int64_t step = 0; step < steps; ++step)
    all.push_back(rate_factor(step, steps, settings));
  return all;
}

TEST(Schedule, WarmsUpToThePeak) {
  EXPECT_THAT(factors(6, {.kind = "constant", .warmup = 4}),
              ElementsAre(0.25, 0.5, 0.75, 1, 1, 1));
}

TEST(Schedule, FallsInALine) {
  EXPECT_THAT(factors(5, {.kind = "linear", .final = 0}),
              ElementsAre(1, 0.8, DoubleNear(0.6, 1e-15),
                          DoubleNear(0.4, 1e-15), DoubleNear(0.2, 1e-15)));
  EXPECT_THAT(factors(6, {.kind = "linear", .warmup = 2, .final = 0.2}),
              ElementsAre(0.5, 1, 1, 0.8, 0.6, DoubleNear(0.4, 1e-15)));
}

TEST(Schedule, FallsAsACosine) {
  const auto all = factors(4, {.kind = "cosine", .final = 0.1});
  EXPECT_DOUBLE_EQ(all[0], 1);
  EXPECT_DOUBLE_EQ(all[2], 0.55);
  EXPECT_GT(all[1], all[2]);
  EXPECT_GT(all[3], 0.1);
}

TEST(Schedule, StaysAndThenDecays) {
  EXPECT_THAT(factors(10, {.kind = "wsd", .decay = 0.4}),
              ElementsAre(1, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25));
  EXPECT_EQ(factors(10, {.kind = "wsd", .decay = 0.4}),
            factors(10, {.kind = "wsd", .decay = 4}));
  EXPECT_EQ(factors(4, {.kind = "wsd", .decay = 0}),
            factors(4, {.kind = "constant"}));
  EXPECT_EQ(factors(4, {.kind = "wsd", .decay = 100}),
            factors(4, {.kind = "linear"}));
  EXPECT_EQ(factors(6, {.kind = "wsd", .warmup = 3, .decay = 5}),
            factors(6, {.kind = "linear", .warmup = 3}));
}

// Steps after the last one have the final value.
TEST(Schedule, ReachesTheFinalValueAtTheEnd) {
  for (const char* kind : {"linear", "cosine", "wsd"})
    for (double final : {0.0, 0.1, 1.0})
      for (int64_t steps : {3, 10, 1000}) {
        const ScheduleSettings settings{.kind = kind, .final = final};
        EXPECT_NEAR(rate_factor(steps, steps, settings), final, 1e-15);
        EXPECT_NEAR(rate_factor(steps + 5, steps, settings), final, 1e-15);
      }
}

TEST(Schedule, NeverLeavesZeroToOneOrRisesAfterWarmUp) {
  for (const std::string& kind : schedule_kinds())
    for (int64_t steps : {1, 2, 7, 100})
      for (int64_t warmup : {0, 1, 3, 100, 200})
        for (double decay : {0.0, 0.2, 1.0, 50.0}) {
          const ScheduleSettings settings{kind, warmup, decay, 0.05};
          double last = 1;
          for (int64_t step = 0; step < steps; ++step) {
            const double factor = rate_factor(step, steps, settings);
            EXPECT_GT(factor, 0);
            EXPECT_LE(factor, 1);
            if (step < warmup) continue;
            EXPECT_LE(factor, last);
            last = factor;
          }
        }
}

TEST(Schedule, OnlyWarmsUpWhereStepsEndBefore) {
  EXPECT_THAT(factors(3, {.kind = "cosine", .warmup = 4}),
              ElementsAre(0.25, 0.5, 0.75));
  EXPECT_THAT(factors(1, {.kind = "linear"}), ElementsAre(1));
  EXPECT_THAT(factors(0, {.kind = "linear"}), ElementsAre());
  EXPECT_DOUBLE_EQ(rate_factor(0, 0, {.kind = "constant"}), 1);
}

}  // namespace
}  // namespace canzona::train::schedule_test
