#include "canzona/report/html_sections.h"

#include <gtest/gtest.h>

#include "canzona/report/test_html_sample.h"

namespace canzona::html_rounds_test {
namespace {

size_t blocks_in(const std::vector<DrawnRound>& rounds) {
  size_t count = 0;
  for (const DrawnRound& round : rounds) {
    for (const auto& blocks : round.blocks) count += blocks.size();
  }
  return count;
}

TEST(HtmlRounds, EveryMatrixOfTheHomeIsInOneRound) {
  const ReportPlan shown = make_sample({});
  size_t blocks = 0;
  for (int32_t home = 0; home < 4; ++home) {
    blocks += blocks_in(rounds_of(shown.plan.parts[0], {.home = home}));
  }
  EXPECT_EQ(blocks, shown.plan.matrices.size());
}

TEST(HtmlRounds, ARoundIsAsWideAsItsBusiestOwner) {
  const ReportPlan shown = make_sample({});
  for (const DrawnRound& round : rounds_of(shown.plan.parts[0], {})) {
    double widest = 0;
    for (const auto& blocks : round.blocks) {
      double sum = 0;
      for (const Block& block : blocks) sum += block.cost;
      widest = std::max(widest, sum);
    }
    EXPECT_EQ(round.widest, widest);
  }
}

TEST(HtmlRounds, ATeamSharesItsMatrix) {
  ReportPlan shown = make_sample({.layers = 1});
  Plan& plan = shown.plan;
  const size_t all = blocks_in(rounds_of(plan.parts[0], {}));
  plan.parts[0].owners = {};
  plan.parts[0].rule_options =
      make_rule_facts("muon", {{"strips", "2"}})->options();
  const int32_t team[] = {0, 1};
  for (size_t m = 0; m < plan.matrices.size(); ++m)
    plan.parts[0].owners.push_back(team);
  const std::vector<DrawnRound> rounds = rounds_of(plan.parts[0], {});
  EXPECT_EQ(blocks_in(rounds), 2 * all);
  const Block& head = rounds[0].blocks[0][0];
  const Block& member = rounds[0].blocks[1][0];
  ASSERT_EQ(head.matrix, member.matrix);
  EXPECT_GT(head.cost, member.cost);
  const auto whole =
      static_cast<double>(plan.costs[head.matrix].every_step.value());
  EXPECT_NEAR(head.cost + member.cost, whole, whole / 50);
}

TEST(HtmlRounds, ShapesAreListedOnceLargestFirst) {
  const ReportPlan shown = make_sample({});
  const std::vector<MatrixShape> shapes =
      shapes_of(shown.plan, rounds_of(shown.plan.parts[0], {}));
  for (size_t i = 1; i < shapes.size(); ++i) {
    EXPECT_GE(shapes[i - 1].rows * shapes[i - 1].cols,
              shapes[i].rows * shapes[i].cols);
    EXPECT_NE(shapes[i - 1], shapes[i]);
  }
}

TEST(HtmlRounds, TheBusiestRankIsTheFirstOfEquals) {
  ReportPlan shown = make_sample({});
  for (RankCost& rank : shown.ranks) rank.every_step = Ticks{7};
  EXPECT_EQ(busiest_rank(shown), 0);
  shown.ranks[5].every_step = Ticks{8};
  EXPECT_EQ(busiest_rank(shown), 5);
}

}  // namespace
}  // namespace canzona::html_rounds_test
