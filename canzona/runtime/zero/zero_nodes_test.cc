// Modules exchanged in two levels (plan/schedule/rank_group.h) have the same
// results as direct ones.
#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/comm/test_ranks.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/runtime/zero/test_zero.h"

namespace canzona::runtime::zero_nodes_test {
namespace {

ZeroVariant once_per_node(ZeroVariant v, int32_t ranks_per_node) {
  v.reach = Reach::kPerNode;
  v.ranks_per_node = ranks_per_node;
  return v;
}

TEST(ZeroNodes, GiveTheResultOfDirectOnes) {
  for (const ZeroSizes& sizes : std::vector<ZeroSizes>{
           {8, 8, 8}, {8, 8, 1}, {8, 1, 8}, {8, 2, 8}, {8, 4, 4}, {4, 4, 4}})
    for (const MessageUnit message :
         {MessageUnit::kModule, MessageUnit::kParameter}) {
      const ZeroVariant v{
          .sizes = sizes, .message = message, .micro_batches = 2};
      const std::string direct = zero_digest(toy_moe(), 8, v);
      ASSERT_FALSE(direct.empty());
      for (const int32_t ranks_per_node : {2, 4})
        EXPECT_EQ(zero_digest(toy_moe(), 8, once_per_node(v, ranks_per_node)),
                  direct)
            << to_string(sizes) << ", nodes of " << ranks_per_node;
    }
}

// Nodes of three ranks add in a different order.
TEST(ZeroNodes, OfThreeShowInSumsThatAreNotExact) {
  ZeroVariant v{.sizes = {6, 6, 6}};
  EXPECT_NE(zero_digest(toy_model(), 6, once_per_node(v, 3)),
            zero_digest(toy_model(), 6, v));
  EXPECT_EQ(zero_digest(toy_model(), 6, once_per_node(v, 2)),
            zero_digest(toy_model(), 6, v));
  v.gradients = GradientKind::kExact;
  EXPECT_EQ(zero_digest(toy_model(), 6, once_per_node(v, 3)),
            zero_digest(toy_model(), 6, v));
}

TEST(ZeroNodes, AreRefusedWhereAGroupHasUnevenNodes) {
  EXPECT_THROW(
      zero_plan(toy_model(), 6, once_per_node({.sizes = {6, 6, 6}}, 4)),
      UsageError);
  EXPECT_THROW(
      zero_plan(toy_model(), 6, once_per_node({.sizes = {6, 1, 1}}, 4)),
      UsageError);
}

// Plain storage: sums and publishing.

struct PlainCase {
  int32_t ranks;
  int32_t per_node;
};
// The pairs of a rank count in {1, 2, 4, 7, 8} and a node size in {1, 2, 3, 4,
// 8} that give several nodes with several ranks, a power of two, on each.
const std::vector<PlainCase> kInLegs = {{4, 2}, {8, 2}, {8, 4}};

PlanWish plain_wish(int32_t ranks, int32_t per_node, Reach reach) {
  PlanWish wish{.mesh = cat("dp=", ranks), .ranks_per_node = per_node};
  wish.zero_options.reach = reach;
  return wish;
}

Trial plain_trial(const Plan& plan, DType wire) {
  Trial trial{.plan = plan, .gradients = GradientKind::kRandom, .steps = 2};
  trial.options.wire = wire;
  trial.ranks.communicator.ranks_per_node = plan.options.ranks_per_node;
  return trial;
}

std::string digest_of_trial(const Trial& trial) {
  const TrialResult result = run_trial(trial);
  return result.parameters + result.states;
}

TEST(PlainNodes, HaveTheBitsOfDirectOnes) {
  for (const std::string rule : {"muon", "adamw", "soap", "shampoo"})
    for (const std::string& strategy : strategy_names())
      for (const DType wire : {DType::kFp32, DType::kBf16})
        for (const auto& [ranks, per_node] : kInLegs) {
          SCOPED_TRACE(cat(rule, " ", strategy, " ", size_of(wire), " bytes, ",
                           ranks, " ranks on nodes of ", per_node));
          PlanWish wish = plain_wish(ranks, per_node, Reach::kDirect);
          wish.rule = rule;
          wish.options = quick(rule);
          wish.strategy = strategy;
          const Plan direct = small_plan(toy_moe(1), wish);
          wish.zero_options.reach = Reach::kPerNode;
          const Plan legs = small_plan(toy_moe(1), wish);
          ASSERT_EQ(legs.options.zero.reach, Reach::kPerNode);
          EXPECT_EQ(digest_of_trial(plain_trial(legs, wire)),
                    digest_of_trial(plain_trial(direct, wire)));
        }
}

// Other combinations are refused with the counts, or planned as direct.
TEST(PlainNodes, OfAnyOtherNumberAreRefusedOrDirect) {
  int num_refused = 0, num_direct = 0, num_legs = 0;
  for (const int32_t ranks : {1, 2, 4, 7, 8})
    for (const int32_t per_node : {1, 2, 3, 4, 8}) {
      SCOPED_TRACE(cat(ranks, " ranks on nodes of ", per_node));
      const auto plan = [&](Reach reach) {
        return small_plan(toy_model(), plain_wish(ranks, per_node, reach));
      };
      const std::string direct = plan(Reach::kDirect).digest;
      const Plan chosen = plan(Reach::kAuto);
      try {
        const Plan asked = plan(Reach::kPerNode);
        EXPECT_EQ(asked.digest, chosen.digest);
        const bool legs = asked.options.zero.reach == Reach::kPerNode;
        EXPECT_EQ(asked.digest == direct, !legs);
        ++(legs ? num_legs : num_direct);
      } catch (const UsageError&) {
        ++num_refused;
        EXPECT_EQ(chosen.digest, direct);
        EXPECT_NE(why_direct(chosen), "");
      }
    }
  EXPECT_EQ(num_legs, std::ssize(kInLegs));
  EXPECT_EQ(num_refused, 5);  // 4 and 8 on nodes of 3; 7 on nodes of 2, 3, 4
  EXPECT_EQ(num_direct, 25 - 5 - 3);
}

TEST(PlainNodes, HaveTheSameBitsOverSockets) {
  for (const std::string strategy : {"balanced", "layerwise", "replicated"})
    for (const DType wire : {DType::kFp32, DType::kBf16})
      for (const auto& [ranks, per_node] : kInLegs) {
        SCOPED_TRACE(cat(strategy, ", ", ranks, " ranks on nodes of ", per_node,
                         ", ", size_of(wire), " bytes"));
        PlanWish wish = plain_wish(ranks, per_node, Reach::kDirect);
        wish.strategy = strategy;
        const Trial threads = plain_trial(small_plan(toy_moe(1), wish), wire);
        wish.zero_options.reach = Reach::kPerNode;
        Trial sockets = plain_trial(small_plan(toy_moe(1), wish), wire);
        sockets.run_on = [&](int num_ranks, const RankFunction& function) {
          run_test_ranks(num_ranks, sockets.ranks.communicator, function);
        };
        EXPECT_EQ(digest_of_trial(sockets), digest_of_trial(threads));
      }
}

}  // namespace
}  // namespace canzona::runtime::zero_nodes_test
