#include "canzona/plan/strategies/strategy.h"

#include <gmock/gmock.h>

#include <cmath>

#include "canzona/plan/predict/summary.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::contiguous_test {
namespace {

using ::testing::ElementsAre;

// One bucket of 9, 1, 1, 1 elements (backward finishes m3 first) on two homes:
// the border nearest to the half, 6, lies before the large tensor.
TEST(Contiguous, CutsAtTheNearestTensorBorder) {
  const Plan plan =
      plan_of(squares({3, 1, 1, 1}), "dp=2", with_strategy("contiguous"));
  ASSERT_EQ(plan.parts[0].buckets.size(), 1U);
  EXPECT_THAT(plan.parts[0].buckets[0].tensors, ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(plan.parts[0].home, ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(plan.parts[0].buckets[0].cuts, ElementsAre(0, 3, 12));
}

// Two borders are as near; the first one is taken.
TEST(Contiguous, TakesTheFirstOfTwoBorders) {
  const Plan plan =
      plan_of(squares({1, 1, 1}), "dp=2", with_strategy("contiguous"));
  EXPECT_THAT(plan.parts[0].buckets[0].cuts, ElementsAre(0, 1, 3));
}

// Replays the published listing beside a plan: at every cut no later border may
// be nearer to the running target than the one that was taken.
class Replay {
 public:
  Replay(const Plan& plan, double alpha)
      : plan_(plan),
        alpha_(alpha),
        ranks_(static_cast<size_t>(plan.mesh.dp)),
        load_(ranks_, 0) {
    for (const Bucket& bucket : plan.parts[0].buckets) {
      borders_.emplace_back(1, 0);
      for (int32_t t : bucket.tensors) {
        const Tensor& tensor = plan.model.tensors[static_cast<size_t>(t)];
        borders_.back().push_back(
            borders_.back().back() +
            static_cast<double>(shard_elements(plan.mesh, tensor)));
      }
      sum_ += borders_.back().back();
    }
  }

  void run() {
    std::vector<size_t> order;
    for (size_t b = 0; b < borders_.size(); ++b) order.push_back(b);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return borders_[a].back() > borders_[b].back();
    });
    for (size_t b : order) check_bucket(b);
  }

 private:
  std::vector<double> wanted(double total) const {
    const double mean = sum_ / static_cast<double>(ranks_);
    double lack = 0;
    for (double load : load_) lack += std::max(0.0, mean - load);
    std::vector<double> want;
    for (double load : load_) {
      const double even = 1 / static_cast<double>(ranks_);
      const double fill = lack > 0 ? std::max(0.0, mean - load) / lack : even;
      want.push_back(total * ((1 - alpha_) * even + alpha_ * fill));
    }
    return want;
  }

  void check_bucket(size_t b) {
    const std::vector<double>& border = borders_[b];
    const std::vector<double> want = wanted(border.back());
    const std::vector<int64_t>& cuts = plan_.parts[0].buckets[b].cuts;
    ASSERT_EQ(cuts.size(), ranks_ + 1);
    EXPECT_EQ(cuts.front(), 0);
    EXPECT_EQ(static_cast<double>(cuts.back()), border.back());
    double target = 0;
    for (size_t r = 0; r < ranks_; ++r) {
      const auto begin = static_cast<double>(cuts[r]);
      const auto end = static_cast<double>(cuts[r + 1]);
      load_[r] += end - begin;
      target += want[r];
      if (r + 1 == ranks_) break;
      double nearest = HUGE_VAL;
      for (double at : border) {
        if (at >= begin) nearest = std::min(nearest, std::fabs(at - target));
      }
      EXPECT_NEAR(std::fabs(end - target), nearest, 1e-6) << "bucket " << b;
      EXPECT_NE(std::find(border.begin(), border.end(), end), border.end());
    }
  }

  const Plan& plan_;
  double alpha_;
  size_t ranks_;
  std::vector<double> load_;
  std::vector<std::vector<double>> borders_;  // per bucket
  double sum_ = 0;
};

TEST(Contiguous, FollowsTheListing) {
  Random random(51);
  for (int trial = 0; trial < 200; ++trial) {
    const int32_t dp = random.pick<int32_t>({1, 2, 4, 7, 8});
    const int32_t tp = random.pick<int32_t>({1, 2, 4});
    const Model model = random_matrices(random, random.between(1, 60), 40, tp);
    PlanOptions options = with_strategy("contiguous");
    options.alpha = random.pick<double>({0, 0.3, 0.5, 1});
    options.bucket_elements = random.between(1, 8000);
    const Plan plan = plan_of(model, cat("dp=", dp, ",tp=", tp), options);
    SCOPED_TRACE(cat("trial ", trial));
    Replay(plan, *options.alpha).run();
    if (HasFailure()) return;
  }
}

Plan published_case(std::optional<double> alpha, const std::string& form) {
  PlanOptions options = with_strategy("contiguous");
  options.alpha = alpha;
  return plan_of(read_model("qwen3-32b", {.fused = true}), "dp=32,tp=8",
                 options, {"muon", {{"newton_schulz", form}}});
}

TEST(Contiguous, GivesThePublishedRatios) {
  const Plan plan = published_case(1, "standard");
  EXPECT_EQ(plan.parts[0].buckets.size(), 10U);
  const Balance balance = measure_balance(plan);
  EXPECT_NEAR(balance.dp.memory_max_over_mean, 1.113, 0.0005);
  EXPECT_NEAR(balance.dp.shard_flops_max_over_mean, 1.434, 0.0005);
  EXPECT_NEAR(balance.dp.cost_max_over_mean, 1.160, 0.0005);
}

TEST(Contiguous, GivesTheRatioOfGramCosts) {
  const Balance balance = measure_balance(published_case(1, "gram"));
  EXPECT_NEAR(balance.dp.cost_max_over_mean, 1.446, 0.0005);
}

TEST(Contiguous, TakesAlphaOneUnlessTold) {
  EXPECT_EQ(published_case(std::nullopt, "gram").parts[0].home,
            published_case(1, "gram").parts[0].home);
  EXPECT_NE(published_case(0, "gram").parts[0].home,
            published_case(1, "gram").parts[0].home);
}

// dp rank 0 gets 18 matrices, which fit one micro-group of the default
// capacity.
TEST(Contiguous, GivesThePublishedRatiosOverTp) {
  const Plan plan = published_case(1, "standard");
  int matrices = 0, last_group = 0;
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    if (plan.parts[0].home[static_cast<size_t>(plan.matrices[m].tensor)] != 0)
      continue;
    ++matrices;
    last_group = std::max(last_group, plan.parts[0].micro_group[m]);
  }
  EXPECT_EQ(matrices, 18);
  EXPECT_EQ(last_group, 0);
  const Balance balance = measure_balance(plan);
  EXPECT_NEAR(balance.tp.memory_max_over_mean, 1.162, 0.0005);
  EXPECT_NEAR(balance.tp.shard_flops_max_over_mean, 2.455, 0.0005);
}

}  // namespace
}  // namespace canzona::plan::contiguous_test
