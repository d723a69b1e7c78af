#include "canzona/plan/micro_groups/modes.h"

#include <gmock/gmock.h>

#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::single_test {
namespace {

using ::testing::ElementsAre;

std::vector<int32_t> owners_of(const Plan& plan) {
  std::vector<int32_t> out;
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    out.push_back(plan.parts[0].owners[m].front());
  }
  return out;
}

// Backward finishes m3 first: rounds 0, 1, 2, 3 and owners 0, 1, 0, 1 from
// there.
TEST(SingleRounds, GoRoundRobinInPlanOrder) {
  const Plan plan = plan_of(squares({2, 5, 3, 4}), "tp=2",
                            with_strategy("start_offset", "none"));
  EXPECT_THAT(plan.parts[0].micro_group, ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(owners_of(plan), ElementsAre(1, 0, 1, 0));
}

TEST(SingleRounds, AreTheDefaultOfStartOffset) {
  const Plan plan =
      plan_of(squares({2, 5, 3, 4}), "tp=2", with_strategy("start_offset"));
  EXPECT_EQ(plan.options.micro_groups, "none");
  EXPECT_THAT(plan.parts[0].micro_group, ElementsAre(3, 2, 1, 0));
}

// The 5 × 5 first, then 4 × 4, 3 × 3, 2 × 2.
TEST(SortedRounds, TakeTheLargestFirst) {
  const Plan plan = plan_of(squares({2, 5, 3, 4}), "tp=2",
                            with_strategy("start_offset", "sorted"));
  EXPECT_THAT(plan.parts[0].micro_group, ElementsAre(3, 0, 2, 1));
  EXPECT_THAT(owners_of(plan), ElementsAre(1, 0, 0, 1));
}

TEST(SortedRounds, AreTheDefaultOfMegatron) {
  const Plan plan =
      plan_of(squares({2, 5, 3, 4}), "tp=2", with_strategy("megatron"));
  EXPECT_EQ(plan.options.micro_groups, "sorted");
  EXPECT_THAT(plan.parts[0].micro_group, ElementsAre(3, 0, 2, 1));
}

TEST(SortedRounds, KeepPlanOrderAmongEquals) {
  const Plan plan = plan_of(squares({3, 3, 3}), "tp=2",
                            with_strategy("start_offset", "sorted"));
  EXPECT_THAT(plan.parts[0].micro_group, ElementsAre(2, 1, 0));
}

// Rounds of each home count from 0.
TEST(SingleRounds, CountInEachHome) {
  const Plan plan = plan_of(squares({2, 2, 2, 2}), "dp=2,tp=2",
                            with_strategy("start_offset", "none"));
  EXPECT_THAT(plan.parts[0].home, ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(plan.parts[0].micro_group, ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(owners_of(plan), ElementsAre(1, 0, 1, 0));
}

// With tp = 1 nothing moves.
TEST(SingleRounds, AreOneRoundWhereNothingMoves) {
  const Plan plan = plan_of(squares({2, 5, 3}), "dp=1",
                            with_strategy("start_offset", "none"));
  EXPECT_THAT(plan.parts[0].micro_group, ElementsAre(0, 0, 0));
  EXPECT_THAT(owners_of(plan), ElementsAre(0, 0, 0));
}

}  // namespace
}  // namespace canzona::plan::single_test
