// Ranks that own blocks of matrices give the bits of ranks that own matrices;
// they send, store and reserve what the plan says, and continue from each
// other's states.
#include <gmock/gmock.h>

#include <set>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/validate/validate.h"
#include "canzona/runtime/testing/test_block_plans.h"
#include "canzona/runtime/testing/test_fault_trials.h"
#include "canzona/runtime/testing/test_shared_plans.h"

namespace canzona::runtime::blocks_test {
namespace {

using ::testing::IsEmpty;

size_t count_in_blocks(const Plan& plan) {
  size_t count = 0;
  for (const PlanPart& part : plan.parts)
    for (size_t m = 0; m < part.owners.size(); ++m)
      count += part.owners[m].size() > 1;
  return count;
}

class BlocksOfRule : public testing::TestWithParam<std::string> {};

// Over several refreshes, with and without clipping.
TEST_P(BlocksOfRule, GiveTheBitsOfWholeOwners) {
  for (const int phases : {1, 3})
    for (const double clip_norm : {0.0, 0.5}) {
      std::set<Bits> seen;
      for (const std::string mesh : {"dp=1", "tp=2", "dp=2,tp=4"})
        for (const bool apart : {false, true}) {
          SCOPED_TRACE(cat(phases, " ", clip_norm, " ", mesh, " ", apart));
          const PlanWish wish = block_wish(GetParam(), mesh, phases);
          const Plan plan =
              apart ? block_plan(wish) : small_plan(blocked_model(), wish);
          if (apart && plan.mesh.tp > 1) {
            EXPECT_EQ(count_in_blocks(plan), 5U);
          }
          EXPECT_THAT(validate(plan), IsEmpty());
          seen.insert(
              bits_of({.plan = plan, .steps = 20, .clip_norm = clip_norm}));
          ASSERT_EQ(seen.size(), 1U);
        }
    }
}

TEST_P(BlocksOfRule, GiveThemWithEveryStrategyAndSlicesOfZero) {
  std::set<Bits> seen;
  for (const std::string strategy :
       {"balanced", "contiguous", "start_offset", "megatron", "replicated"})
    for (const auto& [mesh, zero] : {std::pair{"dp=2,tp=2", "zero1"},
                                     {"dp=4", "hier:4"},
                                     {"dp=4,tp=2", "hier:2"}})
      for (const bool apart : {false, true}) {
        SCOPED_TRACE(cat(strategy, " ", mesh, " ", zero, " ", apart));
        PlanWish wish = block_wish(GetParam(), mesh);
        wish.strategy = strategy;
        if (strategy != "replicated") wish.micro_groups = "balanced";
        if (strategy != "balanced" && std::string(zero) != "zero1") continue;
        wish.zero = zero;
        seen.insert(bits_of({.plan = apart ? block_plan(wish)
                                           : small_plan(blocked_model(), wish),
                             .steps = 7}));
        ASSERT_EQ(seen.size(), 1U);
      }
}

TEST_P(BlocksOfRule, OfAPlanOfOnesOwnAreReadBackAndRun) {
  expect_own_plans_run(
      blocked_model(), GetParam(), in_blocks(GetParam()),
      [](const Plan& plan) { return count_in_blocks(plan) > 0; });
}

TEST_P(BlocksOfRule, SendKeepAndReserveWhatThePlanSays) {
  for (const auto& [mesh, zero] : {std::pair{"tp=4", "zero1"},
                                   {"dp=2,tp=2", "zero1"},
                                   {"dp=4,tp=2", "hier:2"}}) {
    SCOPED_TRACE(mesh);
    PlanWish wish = block_wish(GetParam(), mesh);
    wish.zero = zero;
    const Plan plan = block_plan(wish);
    const std::vector<RankCost> predicted = predict(plan);
    constexpr int kSteps = 2;
    const TrialResult result = run_trial({.plan = plan, .steps = kSteps});
    for (size_t r = 0; r < predicted.size(); ++r) {
      SCOPED_TRACE(r);
      const auto sent = [&](Collective collective) {
        return kSteps *
               predicted[r].wire[static_cast<size_t>(collective)].sent();
      };
      EXPECT_EQ(result.sent[r].teams, 0);
      EXPECT_EQ(result.sent[r].gather, sent(Collective::kGather));
      EXPECT_EQ(result.sent[r].scatter, sent(Collective::kScatter));
      EXPECT_EQ(result.memory[r].buffers, predicted[r].memory.buffers);
      EXPECT_EQ(result.memory[r].states, predicted[r].memory.states);
    }
  }
}

TEST_P(BlocksOfRule, GoOnFromWholeOwnersAndTheReverse) {
  const Plan whole =
      small_plan(blocked_model(), block_wish(GetParam(), "dp=2,tp=2"));
  const Plan apart = block_plan(block_wish(GetParam(), "tp=4"));
  expect_states_go_on(whole,
                      {{&whole, &apart}, {&apart, &whole}, {&apart, &apart}});
}

TEST(Blocks, EndTogetherWhenARankFails) {
  expect_ranks_end_together(block_plan(block_wish("shampoo", "tp=4")), 4);
}

INSTANTIATE_TEST_SUITE_P(Rules, BlocksOfRule,
                         testing::Values("shampoo", "soap"),
                         [](const auto& rule) { return rule.param; });

}  // namespace
}  // namespace canzona::runtime::blocks_test
