#include "canzona/plan/strategies/strategy.h"

#include <gmock/gmock.h>

#include <cmath>

#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::strategies_megatron_test {
namespace {

using ::testing::ElementsAre;

// By max·min² the 4 × 4 comes first, then the 3 × 3, then the 2 × 2 beside the
// 3 × 3: 4³ against 3³ + 2³.
TEST(Megatron, DealsTheDearestFirst) {
  const Plan plan =
      plan_of(squares({2, 4, 3}), "dp=2", with_strategy("megatron"));
  EXPECT_THAT(plan.parts[0].home, ElementsAre(1, 0, 1));
  EXPECT_EQ(plan.traffic, Traffic::kPadded);
  EXPECT_THAT(plan.parts[0].buckets[0].tensors, ElementsAre(1, 2, 0));
}

// A 4 × 4 costs 64, six of 1 × 8 cost 8 each: by cost alone the other home
// would take all six. But of 64 elements it may keep 1.3 × 32, which is five.
TEST(Megatron, KeepsToABoundOnBytes) {
  std::vector<Tensor> tensors{matrix_tensor("square", 4, 4)};
  for (int i = 0; i < 6; ++i) {
    tensors.push_back(matrix_tensor(cat("thin", i), 1, 8));
  }
  PlanOptions options = with_strategy("megatron");
  const Plan bounded = plan_of(model_of(tensors), "dp=2", options);
  EXPECT_EQ(
      std::count(bounded.parts[0].home.begin(), bounded.parts[0].home.end(), 1),
      5);
  options.alpha = 1;
  const Plan free = plan_of(model_of(tensors), "dp=2", options);
  EXPECT_EQ(std::count(free.parts[0].home.begin(), free.parts[0].home.end(), 1),
            6);
}

// Three equal tensors on two homes: one home must keep two.
TEST(Megatron, GivesToTheEmptiestWhereNobodyHasRoom) {
  const Plan plan =
      plan_of(squares({3, 3, 3}), "dp=2", with_strategy("megatron"));
  EXPECT_THAT(plan.parts[0].home, ElementsAre(0, 1, 0));
}

class ByHand {
 public:
  explicit ByHand(const Plan& plan)
      : plan_(plan),
        home_(plan.model.tensors.size(), kEveryHome),
        compute_(static_cast<size_t>(plan.mesh.dp), 0) {}

  std::vector<int32_t> run() {
    for (const Bucket& bucket : plan_.parts[0].buckets) deal(bucket.tensors);
    return home_;
  }

 private:
  const Tensor& tensor(int32_t t) const {
    return plan_.model.tensors[static_cast<size_t>(t)];
  }
  double cost(int32_t t) const {
    const auto low =
        static_cast<double>(std::min(tensor(t).rows(), tensor(t).cols()));
    const auto high =
        static_cast<double>(std::max(tensor(t).rows(), tensor(t).cols()));
    return high * low * low;
  }
  double bytes(int32_t t) const {
    return static_cast<double>(shard_elements(plan_.mesh, tensor(t)));
  }

  void deal(std::vector<int32_t> tensors) {
    // As backward finishes them: the last of the model first.
    std::sort(tensors.rbegin(), tensors.rend());
    std::stable_sort(tensors.begin(), tensors.end(),
                     [&](int32_t a, int32_t b) { return cost(a) > cost(b); });
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
    ASSERT_EQ(plan.parts[0].home, ByHand(plan).run()) << "trial " << trial;
  }
}

}  // namespace
}  // namespace canzona::plan::strategies_megatron_test
