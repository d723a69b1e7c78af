#include "canzona/plan/strategies/strategy.h"

#include <gmock/gmock.h>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::replicated_test {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

TEST(Replicated, EveryRankRepeatsEveryUpdate) {
  const Plan plan =
      plan_of(squares({2, 4, 3}), "dp=2,tp=2", with_strategy("replicated"));
  EXPECT_THAT(plan.parts[0].home, Each(kEveryHome));
  for (size_t m = 0; m < 3; ++m)
    EXPECT_THAT(plan.parts[0].owners[m], IsEmpty());
  EXPECT_EQ(plan.traffic, Traffic::kAllReduce);
  EXPECT_THAT(plan.parts[0].buckets[0].cuts, IsEmpty());
  for (const RankCost& rank : predict(plan)) EXPECT_EQ(rank.num_matrices, 3);
}

// Symmetric Newton–Schulz in five steps: 5·(3 + 1)·s³ for a square of side s.
TEST(Replicated, TakesAsLongAsOneRankAlone) {
  const int64_t work = 20 * (8 + 64 + 27);
  for (const char* mesh : {"dp=1", "dp=2", "tp=2", "dp=7", "dp=4,tp=2"}) {
    const Plan plan =
        plan_of(squares({2, 4, 3}), mesh, with_strategy("replicated"));
    EXPECT_EQ(plan.summary.makespan, Ticks(work)) << mesh;
    EXPECT_EQ(plan.summary.idle_ranks, 0) << mesh;
  }
}

}  // namespace
}  // namespace canzona::plan::replicated_test
