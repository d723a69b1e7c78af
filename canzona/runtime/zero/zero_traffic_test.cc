// Hierarchical ZeRO sends and reserves exactly the bytes that the plan
// predicts.
#include <gtest/gtest.h>

#include <map>

#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/runtime/zero/test_zero.h"
#include "canzona/runtime/zero/test_zero_traffic.h"

namespace canzona::runtime::zero_traffic_test {
namespace {

PlanWish sized(const ZeroSizes& sizes, int32_t ranks_per_node) {
  return {.mesh = "dp=8",
          .zero = to_string(sizes),
          .ranks_per_node = ranks_per_node};
}

class RanksPerNode : public testing::TestWithParam<int32_t> {};

TEST_P(RanksPerNode, EverySizeSendsWhatThePlanSaid) {
  const std::vector<ZeroSizes> all = all_zero_sizes(8);
  ASSERT_EQ(all.size(), 30U);
  for (const ZeroSizes& sizes : all) {
    SCOPED_TRACE(to_string(sizes));
    expect_as_predicted(small_plan(toy_moe(1), sized(sizes, GetParam())), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(ZeroTraffic, RanksPerNode,
                         testing::Values(1, 2, 3, 4, 8),
                         [](const auto& of) { return cat("of_", of.param); });

TEST(ZeroTraffic, OfEveryStrategyIsAsPredicted) {
  for (const std::string& strategy : strategy_names())
    for (const ZeroSizes& sizes : all_zero_sizes(4)) {
      if (!is_allowed({.sizes = sizes, .strategy = strategy})) continue;
      SCOPED_TRACE(cat(strategy, " ", to_string(sizes)));
      PlanWish wish = sized(sizes, 2);
      wish.mesh = "dp=4";
      wish.strategy = strategy;
      expect_as_predicted(small_plan(toy_moe(1), wish), 2);
    }
}

// Three, six and nine replicas, which are added at once.
TEST(ZeroTraffic, OfReplicasThatAreNoPowersOfTwoIsAsPredicted) {
  struct Case {
    int32_t dp;
    ZeroSizes sizes;
  };
  for (const auto& [dp, sizes] : std::vector<Case>{{6, {3, 1, 1}},
                                                   {6, {3, 1, 3}},
                                                   {9, {3, 1, 1}},
                                                   {12, {6, 2, 2}},
                                                   {12, {6, 1, 2}},
                                                   {12, {6, 2, 6}},
                                                   {18, {9, 1, 1}}})
    for (const std::string& strategy : strategy_names()) {
      if (!is_allowed({.sizes = sizes, .strategy = strategy})) continue;
      for (const int32_t ranks_per_node : {2, 3}) {
        PlanWish wish = sized(sizes, ranks_per_node);
        wish.mesh = cat("dp=", dp);
        wish.strategy = strategy;
        SCOPED_TRACE(cat(wish.mesh, " ", wish.zero, " ", strategy,
                         ", nodes of ", ranks_per_node));
        const Plan plan = small_plan(toy_moe(1), wish);
        ASSERT_TRUE(adds_replicas_at_once(plan.parts[0]));
        expect_as_predicted(plan, 1);
      }
    }
}

TEST(ZeroTraffic, OfOtherWishesIsAsPredicted) {
  for (const ZeroSizes& sizes : all_zero_sizes(4)) {
    SCOPED_TRACE(to_string(sizes));
    PlanWish wish = sized(sizes, 3);
    wish.mesh = "dp=4,tp=2";
    wish.zero_options.replica_sum = ReplicaSum::kAllReduce;
    expect_as_predicted(small_plan(toy_model(), wish), 2);
    wish.mesh = "dp=4,pp=2";
    wish.zero_options = {.message = MessageUnit::kParameter, .prefetch = 0};
    wish.parameters = DType::kBf16;
    wish.rule = "soap";
    wish.options = quick("soap");
    expect_as_predicted(small_plan(toy_model(), wish), 1);
    wish.master = MasterForm::kRemainder;
    expect_as_predicted(small_plan(toy_model(), wish), 1);
  }
}

// Every group is hierarchical where its nodes allow it.
struct OncePerNode {
  void expect(const Model& model, PlanWish wish, int micro_batches) {
    wish.zero_options.reach = Reach::kPerNode;
    SCOPED_TRACE(
        cat(wish.mesh, " ", wish.zero, ", nodes of ", wish.ranks_per_node));
    Plan plan;
    try {
      plan = small_plan(model, wish);
    } catch (const UsageError&) {
      ++num_refused;
      return;
    }
    const PlanPart& part = plan.parts[0];
    const int before = num_legs;
    for (const GroupKind kind : {GroupKind::kGradients, GroupKind::kParameters,
                                 GroupKind::kSums, GroupKind::kExperts})
      if (levels_of(part, 0, kind).across > 1) ++num_legs;
    if (num_legs > before || with_direct)
      expect_as_predicted(plan, micro_batches);
  }
  bool with_direct = false;
  int num_legs = 0;
  int num_refused = 0;
};

TEST_P(RanksPerNode, EverySizeSendsOncePerNodeWhatThePlanSaid) {
  OncePerNode trials;
  for (const ZeroSizes& sizes : all_zero_sizes(8))
    trials.expect(toy_moe(1), sized(sizes, GetParam()), 2);
  const std::map<int32_t, std::pair<int, int>> expected = {
      {1, {0, 0}}, {2, {23, 0}}, {3, {0, 18}}, {4, {9, 0}}, {8, {0, 0}}};
  EXPECT_EQ(std::pair(trials.num_legs, trials.num_refused),
            expected.at(GetParam()));
}

TEST(ZeroTraffic, OfPlainStorageOncePerNodeIsAsPredicted) {
  struct Case {
    const char* mesh;
    int32_t ranks_per_node;
  };
  OncePerNode trials;
  for (const std::string& strategy : strategy_names())
    for (const auto& [mesh, ranks_per_node] :
         std::vector<Case>{{"dp=8", 2},
                           {"dp=8", 4},
                           {"dp=4,tp=2", 4},
                           {"dp=4,pp=2", 2},
                           {"dp=2,cp=2,ep=2", 4},
                           {"dp=4,ep=2", 4}})
      for (const DType parameters : {DType::kFp32, DType::kBf16})
        trials.expect(toy_moe(),
                      {.mesh = mesh,
                       .strategy = strategy,
                       .bucket_elements = 700,
                       .parameters = parameters,
                       .ranks_per_node = ranks_per_node},
                      1);
  EXPECT_EQ(trials.num_refused, 0);
  EXPECT_GE(trials.num_legs, 6 * 6 * 2);
}

TEST(ZeroTraffic, OncePerNodeOnOtherMeshesIsAsPredicted) {
  const Model thin =
      model_of({matrix_tensor("w", 3, 5, Cut::kNone, 0),
                matrix_tensor("v", 7, 2, Cut::kNone, 0),
                adamw_tensor("n", 5, 0), adamw_tensor("one", 1, 1)});
  OncePerNode trials{.with_direct = true};
  for (const ZeroSizes& sizes : all_zero_sizes(6))
    for (const int32_t ranks_per_node : {2, 3})
      trials.expect(thin,
                    {.mesh = "dp=6",
                     .zero = to_string(sizes),
                     .ranks_per_node = ranks_per_node},
                    1);
  for (const ZeroSizes& sizes : all_zero_sizes(4))
    for (const std::string mesh : {"dp=4,tp=2", "dp=4,pp=2"})
      trials.expect(toy_model(),
                    {.mesh = mesh,
                     .parameters = DType::kBf16,
                     .zero = to_string(sizes),
                     .zero_options = {.message = MessageUnit::kParameter},
                     .ranks_per_node = mesh == "dp=4,tp=2" ? 4 : 2},
                    1);
  EXPECT_GT(trials.num_legs, 20);
}

// Counted on four nodes of four, with 4 micro-batches, where everything
// divides: 36 N bytes per rank and step, 9 N once per node, 1.5 N in groups
// within a node.
TEST(ZeroTraffic, BetweenNodesIsASixthOrATwentyFourth) {
  std::vector<Tensor> tensors;
  for (int32_t i = 0; i < 4; ++i)
    tensors.push_back(
        matrix_tensor(cat("layers.", i, ".w"), 64, 16, Cut::kNone, i));
  const int64_t n = 4 * 64 * 16;
  const auto slow_bytes = [&](const char* zero, Reach reach) {
    PlanWish wish{
        .mesh = "dp=16", .rule = "adamw", .zero = zero, .ranks_per_node = 4};
    wish.zero_options.reach = reach;
    Trial trial{.plan = small_plan(model_of(tensors), wish),
                .steps = 1,
                .micro_batches = 4};
    trial.ranks.communicator.ranks_per_node = 4;
    int64_t most = 0;
    for (const Groups::Sent& sent : run_trial(trial).sent_slow)
      most = std::max(most, sent.total());
    return most;
  };
  EXPECT_EQ(slow_bytes("zero3", Reach::kDirect), 36 * n);
  EXPECT_EQ(slow_bytes("zero3", Reach::kPerNode), 9 * n);
  EXPECT_EQ(slow_bytes("hier:4", Reach::kDirect) * 2, 3 * n);
}

// Slices of unequal length, and empty ones.
TEST(ZeroTraffic, OfUnevenSlicesIsAsPredicted) {
  const Model model =
      model_of({matrix_tensor("w", 3, 5, Cut::kNone, 0),
                matrix_tensor("v", 7, 2, Cut::kNone, 0),
                adamw_tensor("n", 5, 0), adamw_tensor("one", 1, 1)});
  for (const std::string mesh : {"dp=4", "dp=6", "dp=7"})
    for (const ZeroSizes& sizes : all_zero_sizes(parse_mesh(mesh).homes())) {
      SCOPED_TRACE(cat(mesh, " ", to_string(sizes)));
      PlanWish wish = sized(sizes, 2);
      wish.mesh = mesh;
      expect_as_predicted(small_plan(model, wish), 1);
    }
}

// 4N/z3 for parameters, 4N/z2 for gradients and (8N AdamW, 4N Muon)/z1 for
// states where everything divides.
TEST(ZeroMemory, IsTheFormulaWhereEverythingDivides) {
  std::vector<Tensor> tensors;
  for (int32_t i = 0; i < 16; ++i)
    tensors.push_back(matrix_tensor(cat("layers.", i / 8, ".w", i), 64, 16,
                                    Cut::kNone, i / 8));
  const int64_t n = 16 * 64 * 16;
  for (const std::string rule : {"muon", "adamw"})
    for (const ZeroSizes& sizes : all_zero_sizes(8)) {
      SCOPED_TRACE(cat(rule, " ", to_string(sizes)));
      PlanWish wish = sized(sizes, 8);
      wish.rule = rule;
      wish.bucket_elements = 1 << 20;
      const Plan plan = small_plan(model_of(tensors), wish);
      const TrialResult result = run_trial({.plan = plan, .steps = 1});
      for (const RankMemory& memory : result.memory) {
        EXPECT_EQ(memory.parameters.value(), 4 * n / sizes.z3);
        EXPECT_EQ(memory.gradients.value(), 4 * n / sizes.z2);
        EXPECT_EQ(memory.states.value(),
                  (rule == "muon" ? 4 : 8) * n / sizes.z1);
      }
    }
}

// Compute that lets gathers go first sees every slot used, and none left over.
TEST(ZeroPools, AreUsedUpToTheirSizeInThePlan) {
  for (const int32_t prefetch : {0, 1, 2, 5})
    for (const ZeroSizes& sizes :
         std::vector<ZeroSizes>{{4, 4, 4}, {4, 2, 2}, {4, 2, 4}, {4, 1, 2}}) {
      SCOPED_TRACE(cat(to_string(sizes), " prefetch ", prefetch));
      Trial trial;
      trial.plan =
          zero_plan(toy_model(4), 4, {.sizes = sizes, .prefetch = prefetch});
      const int32_t slots = pool_sizes(trial.plan.parts[0], 0).gather_slots;
      EXPECT_EQ(slots, 1 + prefetch);
      trial.in_use = [&](Runtime& runtime, int64_t, int32_t) {
        while (runtime.pool_use().gather_slots < slots)
          std::this_thread::yield();
      };
      const TrialResult result = run_trial(trial);
      for (const Runtime::PoolUse& use : result.pools) {
        EXPECT_EQ(use.gather_slots, slots);
        EXPECT_EQ(use.slots_now, 0);
      }
    }
}

}  // namespace
}  // namespace canzona::runtime::zero_traffic_test
