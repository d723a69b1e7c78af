#include "canzona/report/explain.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "canzona/report/shown_plan.h"
#include "canzona/report/test_plans.h"

namespace canzona::report::owner_story_test {
namespace {

TEST(OwnerStory, LoadsAddUp) {
  for (const std::string& strategy : strategy_names()) {
    const ReportPlan shown = shown_plan({.strategy = strategy});
    for (size_t m = 0; m < shown.plan.matrices.size(); ++m) {
      const OwnerStory story = tell_owner(shown, static_cast<int32_t>(m));
      EXPECT_EQ(
          story.load_without + period_load(shown.plan, shown.plan.costs[m]),
          story.load_with);
      EXPECT_LE(story.load_with, story.makespan);
      EXPECT_LE(story.bound, story.makespan);
      EXPECT_FALSE(story.reasons.empty());
      EXPECT_EQ(story.reasons.front().find(strategy), 0U);
    }
  }
}

TEST(OwnerStory, TheOtherRankIsTheLeastLoaded) {
  const ReportPlan shown = shown_plan({.mesh = "dp=4", .num_layers = 5});
  const std::vector<double> loads = period_loads(shown.plan, shown.ranks);
  const OwnerStory story = tell_owner(shown, 0);
  ASSERT_EQ(story.owners.size(), 1U);
  ASSERT_GE(story.other_rank, 0);
  EXPECT_NE(story.other_rank, story.owners.front());
  const double cost = period_load(shown.plan, shown.plan.costs[0]);
  for (int32_t rank = 0; rank < 4; ++rank) {
    if (rank == story.owners.front()) continue;
    EXPECT_LE(story.other_load, loads[static_cast<size_t>(rank)] + cost);
  }
}

TEST(OwnerStory, RepeatedUpdatesHaveNoOtherRank) {
  const OwnerStory story =
      tell_owner(shown_plan({.strategy = "replicated"}), 0);
  EXPECT_TRUE(story.repeated);
  EXPECT_EQ(story.owners.size(), 4U);
  EXPECT_EQ(story.other_rank, -1);
}

TEST(OwnerStory, OneRankHasNoOther) {
  EXPECT_EQ(tell_owner(shown_plan({.mesh = "dp=1"}), 0).other_rank, -1);
}

}  // namespace
}  // namespace canzona::report::owner_story_test
