#include "canzona/plan/strategies/strategy.h"

#include <gmock/gmock.h>

#include "canzona/plan/predict/summary.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::start_offset_test {
namespace {

using ::testing::ElementsAre;

// Backward finishes m2 first. In a bucket of 12 elements m2 begins at 0, m1 at
// 4 and m0 at 8; of two even slices the first ends at 6.
TEST(StartOffset, GivesATensorToTheSliceOfItsFirstElement) {
  const Plan plan =
      plan_of(squares({2, 2, 2}), "dp=2", with_strategy("start_offset"));
  ASSERT_EQ(plan.parts[0].buckets.size(), 1U);
  EXPECT_THAT(plan.parts[0].buckets[0].tensors, ElementsAre(2, 1, 0));
  EXPECT_THAT(plan.parts[0].home, ElementsAre(1, 0, 0));
  EXPECT_THAT(plan.parts[0].buckets[0].cuts, ElementsAre(0, 8, 12));
}

// Walks from slice to slice until one holds the first element.
std::vector<int32_t> homes_by_hand(const Plan& plan, int64_t homes) {
  std::vector<int32_t> out(plan.model.tensors.size(), kEveryHome);
  for (const Bucket& bucket : plan.parts[0].buckets) {
    int64_t total = 0;
    for (int32_t t : bucket.tensors) {
      const Tensor& tensor = plan.model.tensors[static_cast<size_t>(t)];
      if (tensor.matrix_rule) total += shard_elements(plan.mesh, tensor);
    }
    int64_t offset = 0;
    int32_t slice = 0;
    for (int32_t i = 0; i < bucket.num_matrix_tensors; ++i) {
      const auto t =
          static_cast<size_t>(bucket.tensors[static_cast<size_t>(i)]);
      while ((slice + 1) * total <= offset * homes) ++slice;
      out[t] = slice;
      offset += shard_elements(plan.mesh, plan.model.tensors[t]);
    }
  }
  return out;
}

TEST(StartOffset, FollowsTheListing) {
  Random random(50);
  for (int trial = 0; trial < 200; ++trial) {
    const int32_t dp = random.pick<int32_t>({1, 2, 4, 7, 8});
    const int32_t tp = random.pick<int32_t>({1, 2, 4});
    const Model model = random_matrices(random, random.between(1, 30), 40, tp);
    PlanOptions options = with_strategy("start_offset");
    options.bucket_elements = random.between(1, 8000);
    const Plan plan = plan_of(model, cat("dp=", dp, ",tp=", tp), options);
    ASSERT_EQ(plan.parts[0].home, homes_by_hand(plan, dp)) << "trial " << trial;
  }
}

Plan published_case(int64_t bucket_elements, const std::string& form) {
  PlanOptions options = with_strategy("start_offset");
  options.bucket_elements = bucket_elements;
  return plan_of(read_model("qwen3-32b", {.fused = true}), "dp=32,tp=8",
                 options, {"muon", {{"newton_schulz", form}}});
}

TEST(StartOffset, GivesThePublishedRatios) {
  const Plan plan = published_case(400'000'000, "standard");
  EXPECT_EQ(plan.parts[0].buckets.size(), 10U);
  const Balance balance = measure_balance(plan);
  EXPECT_NEAR(balance.dp.memory_max_over_mean, 2.462, 0.0005);
  EXPECT_NEAR(balance.dp.shard_flops_max_over_mean, 3.238, 0.0005);
  EXPECT_NEAR(balance.dp.cost_max_over_mean, 2.345, 0.0005);
}

TEST(StartOffset, GivesTheRatioOfGramCosts) {
  const Balance balance = measure_balance(published_case(400'000'000, "gram"));
  EXPECT_NEAR(balance.dp.cost_max_over_mean, 2.443, 0.0005);
}

TEST(StartOffset, SuffersFromSmallBuckets) {
  EXPECT_NEAR(measure_balance(published_case(40'000'000, "gram"))
                  .dp.memory_max_over_mean,
              16.9, 0.05);
  EXPECT_NEAR(measure_balance(published_case(100'000'000, "gram"))
                  .dp.memory_max_over_mean,
              8.3, 0.05);
}

}  // namespace
}  // namespace canzona::plan::start_offset_test
