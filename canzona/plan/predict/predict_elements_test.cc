#include <gmock/gmock.h>

#include <algorithm>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::predict_elements_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// 32 elements of a matrix and 6 of a norm.
Plan small_plan(const std::string& mesh, const std::string& strategy,
                DType parameters = DType::kFp32) {
  PlanOptions options = with_strategy(strategy);
  options.parameters = parameters;
  return plan_of(
      model_of({matrix_tensor("a", 8, 4, Cut::kRows), adamw_tensor("n", 6)}),
      mesh, options);
}

std::vector<double> bytes_by_rank(const Plan& plan) {
  std::vector<double> out;
  for (const RankCost& rank : predict(passed_on(plan)))
    out.push_back(rank.element_wise_bytes);
  std::sort(out.begin(), out.end());
  return out;
}

// Scaled and looked at, 8 bytes an element; AdamW 28.
TEST(PredictElements, CountsTheGradientsAndAdamw) {
  EXPECT_THAT(bytes_by_rank(small_plan("dp=1", "balanced")),
              ElementsAre(32 * 8 + 6 * (8 + 28)));
  EXPECT_THAT(bytes_by_rank(small_plan("dp=1", "balanced", DType::kBf16)),
              ElementsAre(32 * (8 + 2) + 6 * (8 + 28 + 2)));
}

TEST(PredictElements, CountsWhatARankKeeps) {
  const std::vector<double> bytes =
      bytes_by_rank(small_plan("dp=2", "balanced"));
  EXPECT_EQ(bytes[0] + bytes[1], 32 * 8 + 6 * 36);
  EXPECT_GE(bytes[1], 32 * 8);
}

TEST(PredictElements, CountsWhatAllRepeatOnEveryRank) {
  EXPECT_THAT(bytes_by_rank(small_plan("dp=2", "replicated")),
              Each(32 * 8 + 6 * 36));
}

// A shard of 16 is written into a slot and read from one; the owner copies 32
// in and 32 out.
TEST(PredictElements, CountsTheSlotsOfTheExchange) {
  const double shard = 16 * (8 + 4 + 4) + 6 * 36;
  EXPECT_THAT(bytes_by_rank(small_plan("tp=2", "balanced")),
              ElementsAre(shard, shard + 32 * (8 + 8)));
}

TEST(PredictElements, TakesTimeWhereARateWasMeasured) {
  Plan plan = small_plan("dp=1", "balanced");
  const RankCost without = predict(passed_on(plan)).front();
  EXPECT_EQ(without.element_wise_seconds, 0);
  plan.cost_basis.element_wise_bytes_per_second = 236;
  const RankCost with = predict(passed_on(plan)).front();
  EXPECT_EQ(with.element_wise_seconds, 2);
  EXPECT_DOUBLE_EQ(with.step_seconds, without.step_seconds + 2);
  EXPECT_DOUBLE_EQ(with.step_seconds_mean, without.step_seconds_mean + 2);
  EXPECT_DOUBLE_EQ(with.step_seconds_worst, without.step_seconds_worst + 2);
  EXPECT_EQ(with.transform_seconds_mean, without.transform_seconds_mean);
}

}  // namespace
}  // namespace canzona::plan::predict_elements_test
