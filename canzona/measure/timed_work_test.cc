#include "canzona/measure/iteration_trial.h"

#include <gtest/gtest.h>

#include <numeric>

#include "canzona/measure/clock.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::timed_work_test {
namespace {

double total(const TimedWork& work, const Plan& plan) {
  double sum = 0;
  for (int32_t m = 0; m < num_modules(plan.model); ++m) sum += work.share(m);
  return sum;
}

TEST(TimedWork, SharesAnIterationAmongTheModulesOfAStage) {
  const Plan plan = plan_of(toy_model(), "dp=2");
  const TimedWork work(plan, coordinates_of(plan.mesh, 0), 6);
  EXPECT_NEAR(total(work, plan), 6, 1e-9);
  EXPECT_EQ(work.share(0), 0) << "looking up embeddings takes no time";
}

TEST(TimedWork, LastsAsLongAsItIsToldTo) {
  const Plan plan = plan_of(toy_model(), "dp=2");
  TimedWork work(plan, coordinates_of(plan.mesh, 0), 0.03);
  const double begin = wall_seconds();
  for (int32_t m = 0; m < num_modules(plan.model); ++m) {
    work.forward(m);
    work.backward(m);
  }
  EXPECT_GE(wall_seconds() - begin, 0.0299);
}

}  // namespace
}  // namespace canzona::timed_work_test
