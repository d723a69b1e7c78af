#include "canzona/rules/soap/facts.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"

namespace canzona {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> names(const std::vector<StateFact>& states) {
  std::vector<std::string> names;
  for (const StateFact& state : states) names.push_back(state.name);
  return names;
}

int64_t total_bytes(const std::vector<StateFact>& states) {
  Bytes total;
  for (const StateFact& state : states) total += state.bytes();
  return total.value();
}

// By hand: moments 2·5120·8192, L and Q_L 2·5120², R and Q_R 2·8192², each
// element four bytes.
TEST(SoapFacts, KeepsEverythingWithTheOwner) {
  const auto states = SoapFacts({}).states({5120, 8192});
  EXPECT_THAT(names(states),
              ElementsAre("exp_avg", "exp_avg_sq", "L", "Q_L", "R", "Q_R"));
  for (const StateFact& state : states) {
    EXPECT_EQ(state.lives, Lives::kWithOwner);
  }
  EXPECT_EQ(states[2].shape, (std::vector<int64_t>{5120, 5120}));
  EXPECT_EQ(states[4].shape, (std::vector<int64_t>{8192, 8192}));
  EXPECT_EQ(total_bytes(states), 1'082'130'432);
}

TEST(SoapFacts, CountsBothSides) {
  const Work work = SoapFacts({}).work({5120, 8192});
  EXPECT_EQ(work.every_step, Flops(2'791'728'742'400));
  EXPECT_EQ(work.refresh, Flops(4'559'823'612'586));
}

TEST(SoapFacts, SquareMatricesCostTenCubesAStep) {
  EXPECT_EQ(SoapFacts({}).work({100, 100}).every_step, Flops(10'000'000));
}

// 20/3 d³ per side: 6.67, 53.33 and 180 for d of 1, 2 and 3.
TEST(SoapFacts, RoundsARefreshToTheNearestFlop) {
  EXPECT_EQ(SoapFacts({}).work({1, 1}).refresh, Flops(14));
  EXPECT_EQ(SoapFacts({}).work({2, 2}).refresh, Flops(106));
  EXPECT_EQ(SoapFacts({}).work({3, 3}).refresh, Flops(360));
}

// 25600 > 10000: no R, and with it no rotation or statistics of the columns.
TEST(SoapFacts, LeavesOutTheFactorOfALongSide) {
  const SoapFacts soap({});
  EXPECT_THAT(names(soap.states({5120, 25600})),
              ElementsAre("exp_avg", "exp_avg_sq", "L", "Q_L"));
  EXPECT_EQ(total_bytes(soap.states({5120, 25600})), 1'258'291'200);
  EXPECT_EQ(soap.work({5120, 25600}).every_step, Flops(3'355'443'200'000));
  EXPECT_EQ(soap.work({5120, 25600}).refresh, Flops(894'784'853'333));
  EXPECT_THAT(names(soap.states({25600, 5120})),
              ElementsAre("exp_avg", "exp_avg_sq", "R", "Q_R"));
  EXPECT_EQ(soap.work({25600, 5120}).every_step, Flops(3'355'443'200'000));
  EXPECT_EQ(soap.algorithm({25600, 5120}), "qr");
}

TEST(SoapFacts, KeepsTheFactorOfASideAtTheLimit) {
  const SoapFacts soap(RuleOptions{{"max_preconditioner_dim", "8"}});
  EXPECT_TRUE(soap.has_left_factor({8, 9}));
  EXPECT_FALSE(soap.has_right_factor({8, 9}));
}

TEST(SoapFacts, IsAdamWithoutFactors) {
  const SoapFacts soap(RuleOptions{{"max_preconditioner_dim", "8"}});
  EXPECT_EQ(soap.algorithm({9, 9}), "adam");
  EXPECT_THAT(names(soap.states({9, 9})), ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_EQ(soap.work({9, 9}).every_step, Flops(0));
  EXPECT_EQ(soap.work({9, 9}).refresh, Flops(0));
}

TEST(SoapFacts, RefreshesEveryTenStepsAtOnce) {
  const SoapFacts soap({});
  EXPECT_EQ(soap.period(), 10);
  EXPECT_EQ(soap.phases(), 1);
  EXPECT_EQ(soap.options(), (RuleOptions{{"max_preconditioner_dim", "10000"},
                                         {"phases", "1"},
                                         {"precondition_frequency", "10"}}));
}

TEST(SoapFacts, SpreadsRefreshesOverAtMostAPeriod) {
  EXPECT_EQ(SoapFacts(RuleOptions{{"phases", "10"}}).phases(), 10);
  EXPECT_THROW(SoapFacts(RuleOptions{{"phases", "11"}}), UsageError);
  EXPECT_THROW(SoapFacts(RuleOptions{{"precondition_frequency", "0"}}),
               UsageError);
}

}  // namespace
}  // namespace canzona
