#include "canzona/measure/machine.h"

#include <gtest/gtest.h>

#include "canzona/plan/make_plan.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/testing/test_toy_model.h"
#include "canzona/rules/facts.h"

namespace canzona::measure::machine_speed_test {
namespace {

Plan speed_test_plan(const std::string& mesh) {
  PlanOptions options;
  options.bucket_elements = 3000;
  const auto facts = make_rule_facts(
      "muon", with_device("muon", {{"precision", "fp32"}}, "cpu"));
  return make_plan({toy_model(), parse_mesh(mesh), *facts, options});
}

// Ten times the rate means a tenth of all compute time.
TEST(MachineSpeed, PricesFlopsAtTheRateMeasured) {
  const Plan plan = speed_test_plan("dp=2");
  const auto seconds = [&](double flops) {
    const MachineSpeed speed{.flops_per_second = flops,
                             .copy_bytes_per_second = 1e9};
    return predict(priced(plan, speed))[0].transform_seconds_mean;
  };
  EXPECT_GT(seconds(1e9), 0);
  EXPECT_NEAR(seconds(1e9) / seconds(1e10), 10, 1e-9);
  // The flops are those that the plan counts.
  const double flops = predict(plan)[0].transform_seconds_mean /
                       plan.cost_basis.seconds_per_tick;
  EXPECT_NEAR(seconds(1e9), flops / 1e9, 1e-9 * flops / 1e9);
}

TEST(MachineSpeed, LeavesPlanMemoryAndBytesAlone) {
  const Plan plan = speed_test_plan("dp=2,tp=2");
  const Plan copy = priced(plan, {1e9, 1e9, DType::kFp32});
  EXPECT_EQ(copy.digest, plan.digest);
  EXPECT_TRUE(lacks_cost_table(plan));
  EXPECT_FALSE(lacks_cost_table(copy));
  EXPECT_EQ(copy.parts[0].home, plan.parts[0].home);
  const auto before = predict(plan), after = predict(copy);
  ASSERT_EQ(before.size(), after.size());
  for (size_t r = 0; r < before.size(); ++r) {
    EXPECT_EQ(before[r].memory.total().value(),
              after[r].memory.total().value());
    EXPECT_EQ(before[r].bytes_sent(), after[r].bytes_sent());
  }
}

TEST(MachineSpeed, KeepsACostTableAndLinksThatWereGiven) {
  Plan plan = speed_test_plan("dp=2");
  plan.options.links = {7, 5, 3, /*nominal=*/false};
  EXPECT_EQ(priced(plan, {1, 1, DType::kFp32}).options.links,
            plan.options.links);
  plan.cost_basis.source = "a card";
  EXPECT_EQ(priced(plan, {1, 1, DType::kFp32}).cost_basis, plan.cost_basis);
}

TEST(MachineSpeed, IsMeasuredOnThreads) {
  const MachineSpeed speed = measure_speed_here(speed_test_plan("dp=2"));
  EXPECT_GT(speed.flops_per_second, 0);
  EXPECT_GT(speed.copy_bytes_per_second, 0);
  EXPECT_EQ(speed.precision, DType::kFp32);
}

}  // namespace
}  // namespace canzona::measure::machine_speed_test
