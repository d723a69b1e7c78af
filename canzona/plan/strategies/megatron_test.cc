#include "canzona/plan/strategies/megatron.h"

#include <gmock/gmock.h>

#include <cmath>

#include "canzona/plan/test_support.h"

namespace canzona {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

// By max·min² the 4 × 4 comes first, then the 3 × 3, then the 2 × 2 beside the
// 3 × 3: 4³ against 3³ + 2³.
TEST(Megatron, DealsTheDearestFirst) {
  const Plan plan =
      plan_of(squares({2, 4, 3}), "dp=2", with_strategy("megatron"));
  EXPECT_THAT(plan.home, ElementsAre(1, 0, 1));
  EXPECT_EQ(plan.traffic, Traffic::kPadded);
  EXPECT_THAT(plan.buckets[0].tensors, ElementsAre(1, 2, 0));
}

// Five tensors of 4 elements cost 8 each, one of 20 costs 20 (min side 1), 8
// ranks… here two: 1.3 × the even share is 26 elements, so the third small one
// may not join the long one, although that rank computes least.
TEST(Megatron, KeepsToABoundOnBytes) {
  const Model model = model_of({matrix_tensor("long", 1, 20),
                                matrix_tensor("a", 2, 10),
                                matrix_tensor("b", 2, 10)});
  // Costs 20, 40, 40; 60 elements, at most 39 per home: a | b, then long.
  const Plan bounded = plan_of(model, "dp=2", with_strategy("megatron"));
  // Nobody has room for 40, so that the emptiest takes it.
  EXPECT_THAT((std::vector{bounded.home[1], bounded.home[2]}),
              UnorderedElementsAre(0, 1));
  EXPECT_EQ(bounded.home[0], 0);
}

class ByHand {
 public:
  explicit ByHand(const Plan& plan)
      : plan_(plan),
        home_(plan.model.tensors.size(), kEveryHome),
        compute_(static_cast<size_t>(plan.mesh.dp), 0) {}

  std::vector<int32_t> run() {
    for (const Bucket& bucket : plan_.buckets) deal(bucket.tensors);
    return home_;
  }

 private:
  const Tensor& tensor(int32_t t) const {
    return plan_.model.tensors[static_cast<size_t>(t)];
  }
  double cost(int32_t t) const {
    const auto low = static_cast<double>(
        std::min(tensor(t).rows(), tensor(t).cols()));
    const auto high = static_cast<double>(
        std::max(tensor(t).rows(), tensor(t).cols()));
    return high * low * low;
  }
  double bytes(int32_t t) const {
    return static_cast<double>(shard_elements(plan_.mesh, tensor(t)));
  }

  void deal(std::vector<int32_t> tensors) {
    // As backward finishes them: the last of the model first.
    std::sort(tensors.rbegin(), tensors.rend());
    std::stable_sort(tensors.begin(), tensors.end(), [&](int32_t a, int32_t b) {
      return cost(a) > cost(b);
    });
    double sum = 0, largest = 0;
    for (int32_t t : tensors) {
      sum += bytes(t);
      largest = std::max(largest, bytes(t));
    }
    const auto ranks = static_cast<double>(compute_.size());
    const double limit = std::max(largest, 1.3 * sum / ranks + 1e-6);
    std::vector<double> held(compute_.size(), 0);
    for (int32_t t : tensors) {
      size_t best = choose(held, bytes(t), limit);
      compute_[best] += cost(t);
      held[best] += bytes(t);
      home_[static_cast<size_t>(t)] = static_cast<int32_t>(best);
    }
  }

  // The least busy with room, else the emptiest.
  size_t choose(const std::vector<double>& held, double need,
                double limit) const {
    double least = HUGE_VAL;
    size_t best = 0;
    for (size_t r = held.size(); r-- > 0;) {
      if (held[r] + need <= limit && compute_[r] <= least) {
        least = compute_[r];
        best = r;
      }
    }
    if (least < HUGE_VAL) return best;
    for (size_t r = held.size(); r-- > 0;) {
      if (held[r] <= held[best]) best = r;
    }
    return best;
  }

  const Plan& plan_;
  std::vector<int32_t> home_;
  std::vector<double> compute_;
};

TEST(Megatron, IsPlainLongestFirstUnderTheBound) {
  Random random(52);
  for (int trial = 0; trial < 200; ++trial) {
    const int32_t dp = random.pick<int32_t>({1, 2, 4, 7, 8});
    const int32_t tp = random.pick<int32_t>({1, 2, 4});
    const Model model = random_matrices(random, random.between(1, 40), 40, tp);
    PlanOptions options = with_strategy("megatron");
    options.bucket_elements = random.between(1, 8000);
    const Plan plan = plan_of(model, cat("dp=", dp, ",tp=", tp), options);
    ASSERT_EQ(plan.home, ByHand(plan).run()) << "trial " << trial;
  }
}

}  // namespace
}  // namespace canzona
