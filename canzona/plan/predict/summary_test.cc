#include "canzona/plan/predict/summary.h"

#include <gtest/gtest.h>

#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::plan::summary_test {
namespace {

RankCost rank_with(int64_t ticks, int64_t sent, int64_t parameters,
                   double seconds) {
  RankCost rank;
  rank.every_step = Ticks(ticks);
  rank.refresh = {Ticks(0)};
  rank.num_matrices = ticks > 0;
  rank.wire[0].sent_intra = sent;
  rank.wire[3].sent_inter = 1;
  rank.memory.parameters = Bytes(parameters);
  rank.memory.buffers = Bytes(5);
  rank.step_seconds_mean = seconds;
  rank.step_seconds_worst = 2 * seconds;
  return rank;
}

// Three ranks, two matrices of 8x8 (10,240 flops each).
TEST(Summary, TakesTheLargestOfTheRanks) {
  const Plan plan = plan_of(squares({8, 8}), "dp=3");
  const PlanSummary s = summarize(
      plan, {rank_with(10'240, 40, 100, 0.5), rank_with(0, 60, 80, 0.75),
             rank_with(10'240, 10, 120, 0.25)});
  EXPECT_EQ(s.makespan, Ticks(10'240));
  EXPECT_EQ(s.bound, Ticks(10'240));
  EXPECT_DOUBLE_EQ(s.mean, 20'480.0 / 3);
  EXPECT_EQ(s.idle_ranks, 1);
  EXPECT_EQ(s.bytes_per_rank_max, Bytes(61));
  EXPECT_EQ(s.memory_per_rank_max, Bytes(125));
  EXPECT_DOUBLE_EQ(s.memory_per_rank_mean, 105);
  EXPECT_DOUBLE_EQ(s.step_seconds_mean, 0.75);
  EXPECT_DOUBLE_EQ(s.step_seconds_worst, 1.5);
}

TEST(Summary, IsStoredInThePlan) {
  for (const std::string& strategy : strategy_names()) {
    const Plan plan =
        plan_of(toy_model(), "dp=2,tp=2", with_strategy(strategy));
    EXPECT_EQ(plan.summary, summarize(plan, predict(plan))) << strategy;
    EXPECT_LE(plan.summary.bound, plan.summary.makespan) << strategy;
    EXPECT_GT(plan.summary.step_seconds_mean, 0) << strategy;
  }
}

TEST(Summary, CountsRefreshesOnceInAPeriod) {
  const Plan plan =
      plan_of(squares({3}), "dp=2", {},
              {"soap", {{"precondition_frequency", "10"}, {"refresh", "qr"}}});
  // 270 flops in each of ten steps, 468 of a refresh.
  EXPECT_EQ(plan.summary.makespan, Ticks(3168));
  EXPECT_DOUBLE_EQ(plan.summary.mean, 1584);
  EXPECT_EQ(plan.summary.idle_ranks, 1);
}

TEST(Summary, OfAnEmptyModelIsIdle) {
  const PlanSummary s = plan_of(Model{}, "dp=2,tp=2").summary;
  EXPECT_EQ(s.makespan, Ticks(0));
  EXPECT_EQ(s.bound, Ticks(0));
  EXPECT_EQ(s.idle_ranks, 4);
  EXPECT_EQ(s.bytes_per_rank_max, Bytes(0));
  EXPECT_EQ(s.memory_per_rank_max, Bytes(0));
}

}  // namespace
}  // namespace canzona::plan::summary_test
