// Shampoo with two factors and a helper: owner and helper have the bits of one
// rank, update and states.
#include "canzona/rules/shampoo/helper.h"

#include <gmock/gmock.h>

#include "canzona/linalg/test_remote_engine.h"
#include "canzona/rules/test_team_steps.h"

namespace canzona::rules::shampoo_helper_test {
namespace {

using namespace team_steps;

void expect_pair_as_one(
    const RuleOptions& more, MatrixShape shape, int phase = 0,
    const MakeEngine& make_engine = [] { return make_cpu_engine(); }) {
  RuleOptions options = {{"device", "cpu"}, {"precondition_frequency", "2"}};
  for (const auto& [name, value] : more) options[name] = value;
  ASSERT_TRUE(make_rule_facts("shampoo", options)->strips(shape).has_helper());
  expect_team_as_one(options, shape, 2, phase, make_engine, "shampoo");
}

TEST(ShampooHelper, GivesTheBitsOfOneRank) {
  for (const RuleOptions& more : std::vector<RuleOptions>{
           {},
           {{"preset", "meta"}, {"merge", "off"}},
           {{"precondition_frequency", "1"}},
           {{"root", "newton"}, {"beta1", "0"}, {"grafting", "sgd"}},
           {{"root", "higher"}, {"bias_correction", "off"}},
           {{"kl", "on"}, {"trace_scaling", "on"}},
           {{"classic_momentum", "0.9"}, {"grafting", "none"}},
           {{"drop_weighting", "on"}, {"start_step", "4"}},
           {{"merge", "off"}}})
    for (const MatrixShape shape : {MatrixShape{12, 30}, {30, 12}, {20, 20}}) {
      SCOPED_TRACE(more.empty() ? "default" : more.begin()->first);
      expect_pair_as_one(more, shape);
    }
}

TEST(ShampooHelper, GivesThemForSidesOfOne) {
  for (const MatrixShape shape : {MatrixShape{1, 17}, {17, 1}, {1, 1}})
    expect_pair_as_one({{"merge", "off"}}, shape);
}

TEST(ShampooHelper, FollowsThePhase) {
  for (const int phase : {0, 1})
    expect_pair_as_one({{"phases", "2"}}, {12, 30}, phase);
}

// Only the engine can access the memory.
TEST(ShampooHelper, OnADeviceGivesTheBitsOfOneRank) {
  expect_pair_as_one({{"root", "newton"}}, {12, 30}, 0,
                     [] { return std::make_unique<RemoteEngine>(1); });
}

// Blocks have owners of their own instead.
TEST(ShampooHelper, IsForMatricesOfOneBlockWithTwoFactors) {
  const auto helped = [](const RuleOptions& options, MatrixShape shape) {
    return make_rule_facts("shampoo", options)->strips(shape).has_helper();
  };
  EXPECT_TRUE(helped({{"max_preconditioner_dim", "32"}}, {32, 16}));
  EXPECT_FALSE(helped({{"max_preconditioner_dim", "32"}}, {33, 16}));
  EXPECT_FALSE(helped({{"exponent", "0,0.5"}}, {32, 16}));
  EXPECT_FALSE(helped({{"start_step", "never"}}, {32, 16}));
  EXPECT_FALSE(helped({}, {0, 16}));
  const auto cut = make_rule_facts("shampoo", {{"merge", "1"}});
  EXPECT_TRUE(cut->team_states({8, 16}, 2, 1).empty());
}

}  // namespace
}  // namespace canzona::rules::shampoo_helper_test
