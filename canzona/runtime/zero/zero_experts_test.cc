// Experts that are cut over different ranks than dense tensors: the step's
// result does not depend on where either are, and bytes and memory are as
// planned.
#include <gtest/gtest.h>

#include <limits>

#include "canzona/plan/plan.h"
#include "canzona/runtime/zero/test_zero_classes.h"
#include "canzona/runtime/zero/test_zero_traffic.h"

namespace canzona::runtime::zero_experts_test {
namespace {

struct BothSizes {
  ZeroSizes dense, experts;
};

// All pairs for dp=2, ep=2: four homes of dense tensors, two of experts.
std::vector<BothSizes> all_pairs() {
  std::vector<BothSizes> pairs;
  for (const ZeroSizes& dense : all_zero_sizes(4))
    for (const ZeroSizes& experts : all_zero_sizes(2))
      pairs.push_back({dense, experts});
  return pairs;
}

class ZeroExperts : public testing::TestWithParam<std::string> {};

TEST_P(ZeroExperts, GiveOneResultForAllSizes) {
  ResultClasses results(toy_moe(), 2);
  for (const auto& [dense, experts] : all_pairs())
    ASSERT_TRUE(results.fit(
        {.sizes = dense, .rule = GetParam(), .ep = 2, .experts = experts}));
  EXPECT_EQ(results.count(), 1U);
}

TEST_P(ZeroExperts, GiveOneResultHoweverThingsTravel) {
  Random random(17 * GetParam().size());
  ResultClasses results(toy_moe(), 2);
  for (const auto& [dense, experts] : all_pairs()) {
    ZeroVariant v = random_variant(random, dense, 2);
    v.rule = GetParam();
    v.ep = 2;
    v.experts = experts;
    if (!spreads(v.strategy) && experts.z2 != experts.z3) v.experts = {2, 2, 2};
    ASSERT_TRUE(results.fit(v));
  }
  EXPECT_EQ(results.count(), 1U);
}

TEST_P(ZeroExperts, AreThoseOfOneRankAlone) {
  for (const auto& [dense, experts] :
       std::vector<BothSizes>{{{4, 4, 4}, {2, 2, 2}},
                              {{4, 2, 1}, {2, 1, 2}},
                              {{2, 2, 2}, {1, 1, 1}},
                              {{4, 1, 1}, {2, 2, 1}}}) {
    const ZeroVariant v{
        .sizes = dense, .rule = GetParam(), .ep = 2, .experts = experts};
    SCOPED_TRACE(to_string(v));
    expect_result_of_one_rank(zero_plan(toy_moe(), 2, v));
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, ZeroExperts,
                         testing::Values("muon", "shampoo", "soap", "adamw"),
                         [](const auto& of) { return of.param; });

// The sizes derived from those of dense tensors, on larger meshes; exact sums
// give one result for all sizes, others one per z2.
TEST(ZeroExpertsBeside, DenseOnesGiveOneResult) {
  for (const GradientKind gradients :
       {GradientKind::kExact, GradientKind::kRandom}) {
    Random random(5);
    ResultClasses results(toy_moe(), 4);
    for (const ZeroSizes& sizes : all_zero_sizes(8)) {
      ZeroVariant v = random_variant(random, sizes, 1);
      v.ep = 2;
      v.gradients = gradients;
      v.micro_batches = 2;
      ASSERT_TRUE(results.fit(v));
    }
    EXPECT_EQ(results.count(), gradients == GradientKind::kExact ? 1U : 4U);
  }
}

// Experts may be cut differently even without expert parallelism.
TEST(ZeroExpertsAlone, MayHaveOtherSizes) {
  ResultClasses results(toy_moe(), 4);
  for (const ZeroSizes& experts : all_zero_sizes(4))
    ASSERT_TRUE(results.fit({.sizes = {4, 2, 2}, .experts = experts}));
  EXPECT_EQ(results.count(), 1U);
}

TEST(ZeroExpertsTraffic, IsAsPredicted) {
  for (const int32_t ranks_per_node : {1, 2, 3, 4})
    for (const auto& [dense, experts] : all_pairs()) {
      SCOPED_TRACE(cat(to_string(dense), " experts ", to_string(experts), " ",
                       ranks_per_node, " per node"));
      PlanWish wish{.mesh = "dp=2,ep=2",
                    .zero = to_string(dense),
                    .ranks_per_node = ranks_per_node};
      wish.zero_options.experts = experts;
      expect_as_predicted(small_plan(toy_moe(1), wish), 2);
    }
}

TEST(ZeroExpertsTraffic, OfTpAndPpIsAsPredicted) {
  for (const std::string mesh : {"dp=2,ep=2,tp=2", "dp=2,ep=2,pp=2"})
    for (const std::string zero : {"hier:2", "zero3", "none"}) {
      SCOPED_TRACE(cat(mesh, " ", zero));
      expect_as_predicted(
          small_plan(toy_moe(),
                     {.mesh = mesh, .zero = zero, .ranks_per_node = 3}),
          1);
    }
}

// dp=4, ep=2 on nodes of four: two ranks of each ep coordinate on every node.
TEST(ZeroExpertsOncePerNode, SendWhatThePlanSaidAndChangeNothing) {
  ResultClasses results(toy_moe(), 4);
  for (const ZeroSizes& sizes :
       std::vector<ZeroSizes>{{8, 8, 8}, {8, 4, 8}, {8, 8, 2}})
    for (const Reach reach : {Reach::kDirect, Reach::kPerNode}) {
      const ZeroVariant v{.sizes = sizes,
                          .reach = reach,
                          .ranks_per_node = 4,
                          .ep = 2,
                          .experts = {4, 4, 4}};
      SCOPED_TRACE(to_string(v));
      ASSERT_TRUE(results.fit(v));
      expect_as_predicted(zero_plan(toy_moe(), 4, v), 1);
    }
  EXPECT_EQ(results.count(), 1U);
}

// Only one rank has a bad gradient of an expert.
TEST(ZeroExpertsBadGradient, IsNamedAndSkippedEverywhere) {
  const Plan plan = zero_plan(
      toy_moe(), 2, {.sizes = {4, 2, 2}, .ep = 2, .experts = {2, 2, 2}});
  constexpr int kCulprit = 3;  // ep coordinate 1: experts 2 and 3
  int32_t bad = -1;
  for (size_t t = 0; t < plan.model.tensors.size(); ++t)
    if (plan.model.tensors[t].name == "layers.1.experts.3.down")
      bad = static_cast<int32_t>(t);
  Trial trial{.plan = plan, .steps = 2};
  trial.poison = [&](Runtime& runtime, int64_t step, int32_t t,
                     std::span<float> gradient) {
    if (step == 2 && t == bad && runtime.coordinates().rank == kCulprit)
      gradient.back() = std::numeric_limits<float>::quiet_NaN();
  };
  const TrialResult got = run_trial(trial);
  EXPECT_FALSE(got.outcomes[0].skipped);
  EXPECT_TRUE(got.outcomes[1].skipped);
  EXPECT_EQ(got.outcomes[1].nonfinite_tensor, "layers.1.experts.3.down");
  EXPECT_EQ(got.outcomes[1].nonfinite_rank, kCulprit);
  const TrialResult one = run_trial({.plan = plan, .steps = 1});
  EXPECT_EQ(got.parameters, one.parameters);
  EXPECT_EQ(got.states, one.states);
}

TEST(ZeroExpertsUsage, KnowsWhatIsNotThere) {
  const Plan plan = zero_plan(toy_moe(), 2, {.sizes = {4, 4, 4}, .ep = 2});
  run_ranks(4, [&](Communicator& world) {
    const auto engine = make_cpu_engine();
    Runtime runtime(plan, world, *engine, {});
    for (size_t t = 0; t < plan.model.tensors.size(); ++t) {
      const int32_t expert = plan.model.tensors[t].expert;
      const bool here = expert < 0 || expert / 2 == world.rank() % 2;
      const auto tensor = static_cast<int32_t>(t);
      EXPECT_EQ(runtime.holds(tensor), here);
      if (here) continue;
      EXPECT_THROW(runtime.shard_elements(tensor), UsageError);
      EXPECT_FALSE(runtime.keeps_first(tensor));
    }
  });
}

}  // namespace
}  // namespace canzona::runtime::zero_experts_test
