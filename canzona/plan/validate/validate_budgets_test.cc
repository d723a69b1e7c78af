// Budgets and stored predictions.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/plan/testing/test_tampering.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::plan::validate_budgets_test {
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

TEST(Validate, FindsSecondsThatCannotBe) {
  Plan plan = sound_plan();
  const double mean = plan.summary.step_seconds_mean;
  const double infinite = std::numeric_limits<double>::infinity();
  for (const double worst : {mean / 2, infinite, std::nan("")}) {
    plan.summary.step_seconds_worst = worst;
    EXPECT_THAT(validate(plan),
                ElementsAre(HasSubstr("the stored predictions")))
        << worst;
  }
}

// Every owner has several matrices of 64 bytes.
TEST(Validate, FindsRoundsAboveTheCapacity) {
  Plan plan = plan_of(squares({4, 4, 4, 4, 4, 4, 4, 4}), "tp=2");
  const auto with_capacity = [&](int64_t bytes) {
    plan.options.capacity_bytes = bytes;
    plan.parts[0].options.capacity_bytes = bytes;
    plan.parts[0].micro_group.assign(8, 0);
    summarize(plan);
    return validate(plan);
  };
  EXPECT_THAT(with_capacity(4 * 64), IsEmpty());
  EXPECT_THAT(with_capacity(4 * 64 - 1),
              UnorderedElementsAre(
                  HasSubstr("owner 0 receives 4 matrices of 256 bytes in "
                            "micro-group 0, above the capacity of 255"),
                  HasSubstr("owner 1 receives 4 matrices")));
}

TEST(Validate, FindsABucketThatWasFullBefore) {
  Plan plan = plan_of(squares({4, 4, 4, 4}), "dp=1");
  ASSERT_EQ(plan.parts[0].buckets.size(), 1U);
  const auto with_limit = [&](int64_t elements) {
    plan.options.bucket_elements = elements;
    plan.parts[0].options.bucket_elements = elements;
    return validate(plan);
  };
  EXPECT_THAT(with_limit(64), IsEmpty());
  EXPECT_THAT(with_limit(48), IsEmpty());  // the last one is a small tail
  EXPECT_THAT(with_limit(2),
              ElementsAre("bucket 0 has 64 elements of matrices, but is full "
                          "with 16 (bucket_elements=2)"));
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
}  // namespace canzona::plan::validate_budgets_test
