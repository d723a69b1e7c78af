// Budgets and stored predictions.
#include <gmock/gmock.h>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/plan/testing/test_tampering.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::validate_budgets_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(Validate, FindsRanksAboveTheMemoryCap) {
  Plan plan = sound_plan();
  plan.options.memory_cap_bytes = plan.summary.memory_per_rank_max.value();
  EXPECT_THAT(validate(plan), IsEmpty());
  plan.options.memory_cap_bytes -= 1;
  EXPECT_THAT(validate(plan),
              ElementsAre(HasSubstr("ranks need more memory than the cap")));
  plan.options.memory_cap_bytes = 1;
  EXPECT_THAT(validate(plan), ElementsAre(HasSubstr("4 of 4 ranks")));
}

// Returns a plan with all tensors of a bucket on one home, laid out and
// predicted accordingly.
TEST(Validate, FindsAHomeAboveItsShareOfBytes) {
  Plan plan = plan_of(squares({4, 4, 4, 4}), "dp=4");
  plan.parts[0].home = {0, 0, 0, 0};
  plan.parts[0].buckets[0].cuts = {0, 64, 64, 64, 64};
  summarize(plan);
  EXPECT_THAT(validate(plan),
              ElementsAre("bucket 0: a home keeps 64 elements, above its "
                          "budget of 20"));
  plan.options.alpha = plan.parts[0].options.alpha = 1;
  EXPECT_THAT(validate(plan), IsEmpty());
}

TEST(Validate, FindsChangedPredictions) {
  const std::string says = "the stored predictions are not those of this plan";
  Plan plan = sound_plan();
  plan.summary.makespan += Ticks(1);
  EXPECT_THAT(validate(plan), ElementsAre(says));
  plan = sound_plan();
  plan.summary.memory_per_rank_mean += 1;
  EXPECT_THAT(validate(plan), ElementsAre(says));
  plan = sound_plan();
  plan.summary.step_seconds_worst = -1;
  EXPECT_THAT(validate(plan), ElementsAre(says));
}

// An earlier program predicted each round to be as long as on its slowest rank.
TEST(Validate, TakesThePredictedSecondsOfOtherPrograms) {
  Plan plan = sound_plan();
  plan.summary.step_seconds_mean *= 1.5;
  plan.summary.step_seconds_worst *= 2;
  EXPECT_THAT(validate(plan), IsEmpty());
}

// Several exceeded budgets are all reported.
TEST(Validate, ListsAllBudgets) {
  Plan plan = plan_of(squares({4, 4, 4, 4}), "dp=4");
  plan.parts[0].home = {0, 0, 0, 0};
  plan.parts[0].buckets[0].cuts = {0, 64, 64, 64, 64};
  plan.options.memory_cap_bytes = 1;
  EXPECT_THAT(validate(plan),
              UnorderedElementsAre(HasSubstr("above its budget"),
                                   HasSubstr("predictions"),
                                   HasSubstr("4 of 4 ranks")));
}

}  // namespace
}  // namespace canzona::validate_budgets_test
