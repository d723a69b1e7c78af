// What moves for teams: every element of a matrix reaches the member that has
// its strip, updates come back, and bytes and slots are those predicted.
#include <gtest/gtest.h>

#include "canzona/plan/cost/cost.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/team_schedule.h"
#include "canzona/plan/testing/test_home_of_slots.h"
#include "canzona/plan/testing/test_teams.h"

namespace canzona::plan::team_exchange_test {
namespace {

void check_plan(const Plan& plan) {
  EXPECT_GT(count_teams(plan), 0u);
  check_slots(plan);
}

TEST(TeamExchange, StripsReachTheirMembersAndComeBack) {
  for (const char* mesh : {"tp=4", "tp=8", "dp=2,tp=4"})
    for (const int strips : {2, 8})
      check_plan(plan_of(wide_and_small(1), mesh, with_teams(),
                         rule_with_strips(strips)));
}

// Fused parts, which tp cuts section by section, and uncut matrices.
TEST(TeamExchange, StripsCutSectionsAndUncutMatrices) {
  Model model = wide_and_small(1);
  Tensor& fused = model.tensors[1];
  fused.sections = {{"gate", {0, 1024, 1024, 1}, 1},
                    {"up", {1024, 1024, 1024, 1}, 1}};
  check_plan(plan_of(model, "tp=4", with_teams(), rule_with_strips()));
  model.tensors[1].cut = Cut::kNone;
  model.tensors[0].cut = Cut::kNone;
  check_plan(plan_of(model, "tp=4", with_teams(), rule_with_strips()));
}

// Slices of ZeRO make places of data-parallel ranks: a home of several.
TEST(TeamExchange, HomesOfPlaces) {
  PlanOptions options = with_teams();
  options.zero.sizes = parse_zero("hier:4", 4);
  check_plan(plan_of(wide_and_small(1), "dp=4", options, rule_with_strips()));
}

// An owner assembles all of its matrix, a helper nothing.
TEST(TeamExchange, MatricesReachOwnersWithHelpers) {
  for (const char* mesh : {"tp=4", "dp=2,tp=4"})
    check_plan(plan_of(two_squares(), mesh, with_teams(), soap_with_helpers()));
}

// A triangle of 128 · 129 / 2 numbers there, a basis with the order of its
// vectors and two flags back, in refreshes alone.
TEST(TeamExchange, BytesOfHelpers) {
  const RuleChoice rule = soap_with_helpers();
  const StripFacts facts =
      make_rule_facts(rule.name, rule.options)->strips({128, 128});
  const TeamBytes owner = team_bytes(facts, 2, 0);
  const TeamBytes helper = team_bytes(facts, 2, 1);
  EXPECT_EQ(owner.sums_sent, 4 * 128 * 129 / 2);
  EXPECT_EQ(owner.factors_sent, 0);
  EXPECT_EQ(helper.factors_sent, 16 + 8 * 128 + 4 * 128 * 128);
  EXPECT_EQ(helper.sums_sent, 0);
  EXPECT_EQ(helper.sums_received, owner.sums_sent);
  EXPECT_EQ(owner.factors_received, helper.factors_sent);
  for (const int32_t member : {0, 1}) {
    const TeamBytes ordinary = ordinary_team_bytes(facts, 2, member);
    EXPECT_EQ(ordinary.sums_sent + ordinary.sums_received +
                  ordinary.factors_sent + ordinary.factors_received,
              0);
  }
}

// In a segment the head gets 3m²(k-1)/k bytes in sums, a member m² in factors,
// but for the triangle's diagonal and a few scalars.
TEST(TeamExchange, BytesOfSumsAndFactors) {
  const auto rule = make_rule_facts("muon", {{"strips", "8"}});
  const StripFacts facts = rule->strips({5120, 51200});
  const double square = 5120.0 * 5120.0;
  for (const int32_t size : {2, 4, 8}) {
    int64_t sent = 0, received = 0, factors = 0;
    for (int32_t i = 0; i < size; ++i) {
      const TeamBytes bytes = team_bytes(facts, size, i);
      sent += bytes.sums_sent;
      received += bytes.sums_received;
      factors += bytes.factors_sent - bytes.factors_received;
    }
    EXPECT_EQ(sent, received);
    EXPECT_EQ(factors, 0);
    const TeamBytes head = team_bytes(facts, size, 0);
    const TeamBytes last = team_bytes(facts, size, size - 1);
    EXPECT_NEAR(static_cast<double>(head.sums_received) / facts.segments,
                3 * square * (size - 1) / size, square / 1000);
    EXPECT_EQ(head.factors_received, 0);
    EXPECT_NEAR(static_cast<double>(last.factors_received) / facts.segments,
                square, square / 1000);
  }
}

}  // namespace
}  // namespace canzona::plan::team_exchange_test
