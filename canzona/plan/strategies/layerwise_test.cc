#include "canzona/plan/strategies/strategy.h"

#include <gmock/gmock.h>

#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::layerwise_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The 4 × 4 to home 0, the 3 × 3 to home 1, the 2 × 2 to home 1: 16 and 13
// elements, wherever they lie. Every tp rank repeats the update.
TEST(Layerwise, DealsWholeTensorsLargestFirst) {
  const Plan plan =
      plan_of(squares({2, 4, 3}), "dp=2,tp=2", with_strategy("layerwise"));
  EXPECT_THAT(plan.parts[0].home, ElementsAre(1, 0, 1));
  EXPECT_EQ(plan.traffic, Traffic::kBroadcast);
  for (size_t m = 0; m < 3; ++m)
    EXPECT_THAT(plan.parts[0].owners[m], IsEmpty());
  EXPECT_THAT(plan.parts[0].buckets[0].tensors, ElementsAre(2, 1, 0));
  EXPECT_THAT(plan.parts[0].buckets[0].cuts, IsEmpty());
}

// One list for all buckets; ties to the tensor that backward finishes first and
// to the lowest home.
std::vector<int32_t> homes_by_hand(const Model& model, int32_t dp, int32_t tp) {
  std::vector<size_t> order;
  for (size_t t = model.tensors.size(); t-- > 0;) order.push_back(t);
  auto shard = [&](size_t t) {
    const Tensor& tensor = model.tensors[t];
    return tensor.elements() / (tensor.cut == Cut::kNone ? 1 : tp);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return shard(a) > shard(b); });
  std::vector<int64_t> load(static_cast<size_t>(dp), 0);
  std::vector<int32_t> home(order.size());
  for (size_t t : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += shard(t);
    home[t] = static_cast<int32_t>(least - load.begin());
  }
  return home;
}

TEST(Layerwise, IsOneLongestFirstListOverAllBuckets) {
  Random random(53);
  for (int trial = 0; trial < 200; ++trial) {
    const int32_t dp = random.pick<int32_t>({1, 2, 4, 7, 8});
    const int32_t tp = random.pick<int32_t>({1, 2, 4});
    const Model model = random_matrices(random, random.between(1, 40), 40, tp);
    PlanOptions options = with_strategy("layerwise");
    options.bucket_elements = random.between(1, 8000);
    const Plan plan = plan_of(model, cat("dp=", dp, ",tp=", tp), options);
    ASSERT_EQ(plan.parts[0].home, homes_by_hand(model, dp, tp))
        << "trial " << trial;
  }
}

}  // namespace
}  // namespace canzona::plan::layerwise_test
