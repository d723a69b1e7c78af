#include "canzona/plan/strategies/strategy.h"

#include <gmock/gmock.h>

#include <cmath>

#include "canzona/plan/predict/summary.h"
#include "canzona/plan/search/test_optimum.h"
#include "canzona/plan/testing/test_support.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::plan::strategies_balanced_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Loads = std::vector<int64_t>;

PlanOptions with_alpha(double alpha) {
  PlanOptions options;
  options.alpha = alpha;
  return options;
}

int32_t rank_of(const Plan& plan, size_t matrix) {
  const auto t = static_cast<size_t>(plan.matrices[matrix].tensor);
  return plan.parts[0].home[t] * plan.mesh.tp +
         plan.parts[0].owners[matrix].front();
}

// Four equal matrices on two homes of two: each rank computes one, each home
// keeps two of them side by side in the bucket.
TEST(Balanced, PlansHomesAndOwnersTogether) {
  const Plan plan = plan_of(squares({8, 8, 8, 8}), "dp=2,tp=2");
  EXPECT_EQ(plan.options.strategy, "balanced");
  std::vector<int> matrices(4, 0);
  for (size_t m = 0; m < 4; ++m) {
    ++matrices[static_cast<size_t>(rank_of(plan, m))];
  }
  EXPECT_THAT(matrices, ElementsAre(1, 1, 1, 1));
  ASSERT_THAT(plan.parts[0].buckets, SizeIs(1));
  EXPECT_THAT(plan.parts[0].buckets[0].cuts, ElementsAre(0, 128, 256));
  EXPECT_EQ(plan.summary.makespan, plan.summary.bound);
}

TEST(Balanced, IsOptimalUpToFourteenMatricesOnFourRanks) {
  Random random(70);
  for (int trial = 0; trial < 60; ++trial) {
    const std::string mesh = random.pick<std::string>(
        {"dp=1", "dp=2", "dp=3", "dp=4", "tp=2", "tp=3", "tp=4", "dp=2,tp=2"});
    const Mesh shape = parse_mesh(mesh);
    const Model model =
        random_matrices(random, random.between(1, 14), 60, shape.tp);
    Loads costs;
    for (const Tensor& t : model.tensors) {
      const auto [m, n] = std::minmax({t.rows(), t.cols()});
      const bool gram = 4 * n >= 5 * m && m != n;
      costs.push_back(gram ? 6 * m * m * n + 14 * m * m * m
                           : 15 * m * m * n + 5 * m * m * m);
    }
    const Plan plan = plan_of(model, mesh, with_alpha(1));
    ASSERT_EQ(plan.summary.makespan.value(),
              optimum_by_subsets(costs, shape.world()))
        << "trial " << trial << ", " << mesh;
  }
}

// Returns the smallest sum over steps of the largest load, by trying every
// assignment of tensors (of one matrix each) to ranks within the byte budget of
// each bucket.
class TriesAll {
 public:
  TriesAll(const Plan& plan, double share)
      : plan_(plan), rank_(plan.matrices.size(), 0), share_(share) {
    steps_ = {plan.period - plan.phases};
    steps_.resize(static_cast<size_t>(plan.phases) + 1, 1);
    if (plan.period == 1) steps_ = {1};
  }

  int64_t optimum() {
    int64_t best = INT64_MAX;
    do {
      if (keeps_budget()) best = std::min(best, objective());
    } while (advance());
    return best;
  }

 private:
  int64_t load(size_t m, size_t step) const {
    int64_t load = plan_.costs[m].every_step.value();
    const bool refreshed =
        plan_.period == 1 || plan_.phase[m] + 1 == static_cast<int32_t>(step);
    if (refreshed) load += plan_.costs[m].refresh.value();
    return load;
  }

  int64_t objective() const {
    int64_t sum = 0;
    for (size_t p = 0; p < steps_.size(); ++p) {
      Loads loads(static_cast<size_t>(plan_.mesh.world()), 0);
      for (size_t m = 0; m < rank_.size(); ++m) {
        loads[static_cast<size_t>(rank_[m])] += load(m, p);
      }
      sum += steps_[p] * *std::max_element(loads.begin(), loads.end());
    }
    return sum;
  }

  int64_t elements(int32_t t) const {
    const Tensor& tensor = plan_.model.tensors[static_cast<size_t>(t)];
    return tensor.elements() / (tensor.cut == Cut::kNone ? 1 : plan_.mesh.tp);
  }

  // Returns the largest of the largest shard, the share, and what longest-first
  // dealing needs.
  double budget(const Bucket& bucket) const {
    Loads sizes;
    for (int32_t t : bucket.tensors) sizes.push_back(elements(t));
    std::sort(sizes.rbegin(), sizes.rend());
    Loads held(static_cast<size_t>(plan_.mesh.dp), 0);
    double sum = 0;
    for (int64_t size : sizes) {
      *std::min_element(held.begin(), held.end()) += size;
      sum += static_cast<double>(size);
    }
    const auto reachable =
        static_cast<double>(*std::max_element(held.begin(), held.end()));
    return std::max({static_cast<double>(sizes.front()), reachable,
                     share_ * sum / plan_.mesh.dp + 1e-6});
  }

  bool keeps_budget() {
    if (std::isinf(share_)) return true;
    for (const Bucket& bucket : plan_.parts[0].buckets) {
      std::vector<double> held(static_cast<size_t>(plan_.mesh.dp), 0);
      for (int32_t t : bucket.tensors) {
        const auto home =
            static_cast<size_t>(rank_[static_cast<size_t>(t)] / plan_.mesh.tp);
        held[home] += static_cast<double>(elements(t));
        if (held[home] > budget(bucket)) return false;
      }
    }
    return true;
  }

  bool advance() {
    for (int32_t& r : rank_) {
      if (++r < plan_.mesh.world()) return true;
      r = 0;
    }
    return false;
  }

  const Plan& plan_;
  std::vector<int32_t> rank_;
  double share_;
  Loads steps_;
};

TEST(Balanced, IsOptimalUnderTheBudgetOnBytes) {
  Random random(71);
  int costly = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const std::string mesh =
        random.pick<std::string>({"dp=2", "dp=3", "dp=4", "dp=2,tp=2"});
    const Model model =
        random_matrices(random, random.between(1, 6), 30, parse_mesh(mesh).tp);
    PlanOptions options;
    options.bucket_elements = random.between(1, 3000);
    const Plan plan = plan_of(model, mesh, options);
    SCOPED_TRACE(cat("trial ", trial));
    ASSERT_THAT(validate(plan), IsEmpty());
    const int64_t best = TriesAll(plan, 1.3).optimum();
    ASSERT_EQ(plan.summary.makespan.value(), best);
    costly += best > TriesAll(plan, HUGE_VAL).optimum();
  }
  EXPECT_GT(costly, 3);  // the budget matters
}

TEST(Balanced, IsOptimalOverAPeriodOfRefreshes) {
  Random random(72);
  for (int trial = 0; trial < 40; ++trial) {
    const std::string mesh =
        random.pick<std::string>({"dp=2", "dp=3", "tp=2", "dp=2,tp=2"});
    const Model model =
        random_matrices(random, random.between(1, 6), 30, parse_mesh(mesh).tp);
    const int64_t period = random.between(1, 6);
    const RuleChoice soap{
        "soap",
        {{"precondition_frequency", std::to_string(period)},
         {"phases", std::to_string(random.between(1, period))}}};
    const Plan plan = plan_of(model, mesh, with_alpha(1), soap);
    ASSERT_EQ(plan.summary.makespan.value(), TriesAll(plan, HUGE_VAL).optimum())
        << "trial " << trial;
  }
}

class PublishedCase : public ::testing::Test {
 protected:
  static const Plan& plan() {
    static const Plan made =
        plan_of(read_model("qwen3-32b", {.fused = true}), "dp=32,tp=8");
    return made;
  }
};

// Counted here from homes alone: elements and Gram costs of every home.
TEST_F(PublishedCase, IsLevelOverDpRanks) {
  std::vector<double> memory(32, 0), cost(32, 0);
  for (size_t t = 0; t < plan().model.tensors.size(); ++t) {
    const Tensor& tensor = plan().model.tensors[t];
    if (!tensor.matrix_rule) continue;
    const auto m = static_cast<double>(std::min(tensor.rows(), tensor.cols()));
    const auto n = static_cast<double>(std::max(tensor.rows(), tensor.cols()));
    const auto home = static_cast<size_t>(plan().parts[0].home[t]);
    memory[home] += m * n / 8;
    cost[home] += 6 * m * m * n + 14 * m * m * m;
  }
  EXPECT_LE(max_over_mean(memory), 1.001);
  EXPECT_LE(max_over_mean(cost), 1.001);
  const Balance balance = measure_balance(plan());
  EXPECT_NEAR(balance.dp.memory_max_over_mean, max_over_mean(memory), 1e-9);
  EXPECT_NEAR(balance.dp.cost_max_over_mean, max_over_mean(cost), 1e-9);
}

TEST_F(PublishedCase, KeepsTheBudgetOnBytesInEveryBucket) {
  for (const Bucket& bucket : plan().parts[0].buckets) {
    std::vector<double> held(32, 0);
    double largest = 0, sum = 0;
    for (int32_t i = 0; i < bucket.num_matrix_tensors; ++i) {
      const auto t =
          static_cast<size_t>(bucket.tensors[static_cast<size_t>(i)]);
      const auto shard =
          static_cast<double>(plan().model.tensors[t].elements()) / 8;
      held[static_cast<size_t>(plan().parts[0].home[t])] += shard;
      largest = std::max(largest, shard);
      sum += shard;
    }
    EXPECT_LE(*std::max_element(held.begin(), held.end()),
              std::max(largest, 1.3 * sum / 32));
  }
}

// Ten buckets of which the last is small: it joins its neighbour.
TEST_F(PublishedCase, JoinsASmallTailBucket) {
  EXPECT_THAT(plan().parts[0].buckets, SizeIs(9));
}

// Buckets close at 8 elements, which are two of 2 × 2.
TEST(Balanced, JoinsATailBelowHalfSizeOnly) {
  PlanOptions options;
  options.bucket_elements = 8;
  auto buckets = [&](const std::vector<int64_t>& sides) {
    return plan_of(squares(sides), "dp=2", options).parts[0].buckets.size();
  };
  EXPECT_EQ(buckets({2, 2, 2, 2}), 2U);
  EXPECT_EQ(buckets({2, 2, 2}), 2U);  // a tail of 4
  EXPECT_EQ(buckets({1, 2, 2}), 1U);  // a tail of 1
  EXPECT_EQ(buckets({1}), 1U);        // nothing to join
}

}  // namespace
}  // namespace canzona::plan::strategies_balanced_test
