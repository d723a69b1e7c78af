#include "canzona/measure/planned_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "canzona/measure/test_bench.h"
#include "canzona/plan/predict/predict.h"

namespace canzona::planned_exchange_test {
namespace {

Plan plan_of(const std::string& rule, const ZeroSizes& sizes, double intra,
             double inter, int32_t ranks_per_node = 2) {
  const TestBenchWish wish{
      .mesh = "dp=4", .rule = rule, .ranks_per_node = ranks_per_node};
  return zero_plan(wish, bench_settings(wish), sizes,
                   LinkModel{intra, inter, 0, ranks_per_node});
}

TEST(PlannedExchange, IsNothingWhereNothingIsExchanged) {
  for (const Plan& plan : {plan_of("adamw", {4, 2, 2}, 1e6, 1e5),
                           plan_of("muon", {4, 1, 1}, 1e6, 1e5)}) {
    const PlannedExchange exchange = planned_exchange(plan);
    EXPECT_EQ(exchange.all, 0);
    EXPECT_EQ(exchange.limit(), 1);
    EXPECT_EQ(exchange.step_seconds({}), 0);
  }
}

// Places inside a node: every byte passes ports of intra links, which are busy
// for at least its bytes and at most those of both ends.
TEST(PlannedExchange, TakesTheBytesOfThePlan) {
  const double rate = 1e6;
  const Plan plan = plan_of("muon", {4, 2, 2}, rate, 1);
  int64_t bytes = 0;
  for (const RankCost& rank : predict(plan))
    for (const Collective c : {Collective::kGather, Collective::kScatter})
      bytes += rank.wire[static_cast<size_t>(c)].sent();
  const PlannedExchange exchange = planned_exchange(plan);
  EXPECT_GT(bytes, 0);
  constexpr double kRounding = 1e-9;
  const auto sent = static_cast<double>(bytes);
  EXPECT_GE(exchange.all * rate, (1 - kRounding) * sent);
  EXPECT_LE(exchange.all * rate, (2 + kRounding) * sent);
}

TEST(PlannedExchange, PredictedAndModelledLinksHoldPortsAlike) {
  EXPECT_EQ(Links::kOverheadOfLatency, LinkModel::kOverheadOfLatency);
}

// Two ranks that exchange and compute the same amount.
StepRound like_round(double gather, double transform, double scatter) {
  return {.transform = {transform, transform},
          .gather = {{.from = 0, .to = 1, .port_seconds = gather},
                     {.from = 1, .to = 0, .port_seconds = gather}},
          .scatter = {{.from = 0, .to = 1, .port_seconds = scatter},
                      {.from = 1, .to = 0, .port_seconds = scatter}}};
}

PlannedExchange like_rounds(size_t count, const StepRound& round) {
  PlannedExchange exchange;
  exchange.parts = {{std::vector<StepRound>(count, round)}};
  return exchange;
}

// Dense tensors and experts one after the other.
TEST(PlannedExchange, AddsUpParts) {
  const PlannedExchange dense = like_rounds(1, like_round(1, 4, 1));
  const PlannedExchange experts = like_rounds(1, like_round(2, 3, 2));
  PlannedExchange both;
  both.parts = {dense.parts[0], experts.parts[0]};
  const PlannedExchange::StepRates rates{.elements = 0.5};
  EXPECT_EQ(both.step_seconds(rates),
            dense.step_seconds(rates) + experts.step_seconds({}));
}

TEST(PlannedExchange, TakesSlowLinksBetweenNodes) {
  const Plan together = plan_of("muon", {4, 4, 4}, 1e6, 1e5, 4);
  const Plan apart = plan_of("muon", {4, 4, 4}, 1e6, 1e5, 1);
  EXPECT_NEAR(planned_exchange(apart).all, 10 * planned_exchange(together).all,
              1e-9);
}

TEST(PlannedExchange, HasItsEndsInTheFirstAndTheLastRound) {
  Plan plan = plan_of("muon", {4, 4, 4}, 1e6, 1e6);
  const PlannedExchange several = planned_exchange(plan);
  EXPECT_GT(several.ends, 0);
  EXPECT_LT(several.ends, several.all);
  std::ranges::fill(plan.parts[0].micro_group, 0);
  const PlannedExchange one = planned_exchange(plan);
  EXPECT_EQ(one.ends, one.all);
  EXPECT_EQ(one.limit(), 0);
}

TEST(PlannedExchange, APipelineOfLongTransformsShowsItsEnds) {
  const PlannedExchange exchange = like_rounds(6, like_round(1, 10, 2));
  EXPECT_EQ(exchange.step_seconds({}), 1 + 6 * 10 + 2);
  EXPECT_EQ(exchange.step_seconds({.per_transform = 2}), 1 + 6 * 20 + 2);
  EXPECT_EQ(exchange.step_seconds({.pipelined = false}), 6 * 13);
}

TEST(PlannedExchange, LinksThatTakeLongerDecide) {
  const PlannedExchange exchange = like_rounds(6, like_round(4, 1, 6));
  EXPECT_GE(exchange.step_seconds({}), 6 * 10);
  EXPECT_LE(exchange.step_seconds({}), 6 * 10 + 1);
}

TEST(PlannedExchange, PassesOverElementsHideTheFirstGather) {
  const PlannedExchange exchange = like_rounds(6, like_round(1, 10, 2));
  // Three of six rounds are prepared before the first has arrived.
  EXPECT_EQ(exchange.step_seconds({.elements = 6}), 6 + 6 * 10 + 2);
}

// Each rank works in a different round.
TEST(PlannedExchange, GoesRankByRank) {
  StepRound first = like_round(0, 0, 0), second = first;
  first.transform = {10, 0};
  second.transform = {0, 10};
  PlannedExchange exchange;
  exchange.parts = {{{first, second}}};
  EXPECT_EQ(exchange.step_seconds({}), 10);
}

TEST(PlannedExchange, TheSlowestHomeDecides) {
  PlannedExchange exchange = like_rounds(3, like_round(1, 10, 2));
  exchange.parts[0].push_back(like_rounds(3, like_round(1, 20, 2)).parts[0][0]);
  EXPECT_EQ(exchange.step_seconds({}), 1 + 3 * 20 + 2);
}

}  // namespace
}  // namespace canzona::planned_exchange_test
