#include "canzona/report/shown_plan.h"

#include <gtest/gtest.h>

namespace canzona::report::numbers_test {
namespace {

TEST(RatioText, HasMoreDigitsNearOne) {
  EXPECT_EQ(ratio_text(1.0003), "1.0003");
  EXPECT_EQ(ratio_text(2.462), "2.462");
  EXPECT_EQ(ratio_text(256), "256.0");
}

TEST(Grouped, PutsCommas) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(-100), "-100");
}

TEST(DimsText, NamesEveryRank) {
  EXPECT_EQ(dims_text({}), "scalar");
  EXPECT_EQ(dims_text({7}), "7");
  EXPECT_EQ(dims_text({5120, 25600}), "5120 × 25600");
}

TEST(CostText, SaysFlopsOnlyWhereTicksAreFlops) {
  EXPECT_EQ(cost_text({"nominal", 1e-12}, 2e9), "2.00 Gflop, 2.00 ms");
  EXPECT_EQ(cost_text({"H200", 1e-12}, 2e9), "2.00 ms");
}

TEST(FlopsText, KeepsThreeDigits) {
  EXPECT_EQ(flops_text(5.91e12), "5.91 Tflop");
  EXPECT_EQ(flops_text(0), "0.00 flop");
  EXPECT_EQ(flops_text(999.9e9), "1.00 Tflop");
}

TEST(Spread, FindsTheFirstLargest) {
  const Spread spread = spread_of({1, 4, 4, 3});
  EXPECT_EQ(spread.max, 4);
  EXPECT_EQ(spread.min, 1);
  EXPECT_EQ(spread.mean, 3);
  EXPECT_EQ(spread.largest, 1);
  EXPECT_EQ(spread_of({}).max_over_mean(), 1);
  EXPECT_EQ(spread_of({0, 0}).max_over_mean(), 1);
}

TEST(PeriodLoad, AddsOrdinarySteps) {
  Plan plan;
  plan.period = 10;
  RankCost rank;
  rank.every_step = Ticks(3);
  rank.refresh = {Ticks(5), Ticks(7)};
  EXPECT_EQ(period_load(plan, rank), 42);
  EXPECT_EQ(period_load(plan, MatrixCost{Ticks(2), Ticks(1)}), 21);
}

TEST(MemoryKinds, AddUpToTheTotal) {
  const RankMemory memory{Bytes(1), Bytes(2),  Bytes(4),
                          Bytes(8), Bytes(16), Bytes(32)};
  Bytes sum;
  for (const MemoryKind& kind : memory_kinds(true)) sum += memory.*kind.field;
  EXPECT_EQ(sum, memory.total());
}

TEST(Numbers, CountsThings) {
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(1024, "rank"), "1,024 ranks");
  EXPECT_EQ(counted(2, "matrix"), "2 matrices");
}

}  // namespace
}  // namespace canzona::report::numbers_test
