#include "canzona/report/plan_view.h"

#include <gmock/gmock.h>

#include "canzona/base/json_reader.h"
#include "canzona/report/test_plans.h"

namespace canzona::report::plan_view_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PlanText, SaysWhatIsNominal) {
  const std::string text = print_text(plan_view(shown_plan()), Ink());
  EXPECT_THAT(text, HasSubstr("nominal rate, no cost table"));
  EXPECT_THAT(text, HasSubstr("nominal: 400 GB/s inside a node"));
}

TEST(PlanText, NamesMeasuredCostsAndGivenLinks) {
  EXPECT_THAT(cost_source_text({"H200", 1e-15}), HasSubstr("table of H200"));
  PlanOptions options;
  options.links.nominal = false;
  EXPECT_THAT(links_text(options), HasSubstr("as given"));
}

TEST(PlanText, HasTheBoundBesideTheResult) {
  const std::string text = print_text(balance_view(shown_plan()), Ink());
  EXPECT_THAT(text, HasSubstr("× bound"));
  EXPECT_THAT(text, HasSubstr("bound 1."));
}

TEST(PlanText, FitsThePageForEveryStrategyAndRule) {
  for (const std::string& strategy : strategy_names()) {
    for (const char* rule : {"muon", "shampoo", "soap", "adamw"}) {
      const std::string text = print_text(
          plan_view(shown_plan({.strategy = strategy, .rule = rule})), Ink());
      for (const std::string& line : split_text(text, '\n'))
        EXPECT_LE(display_width(line), kPageWidth) << line;
      EXPECT_THAT(text, Not(HasSubstr("nan")));
      EXPECT_THAT(text, Not(HasSubstr("inf ")));
    }
  }
}

// The step is not the iteration: what it leaves out is named, or counted.
TEST(PlanText, SaysWhatTheStepLeavesOut) {
  ReportPlan shown = shown_plan();
  EXPECT_THAT(print_text(times_view(shown), Ink()),
              HasSubstr("the optimizer step alone: sums of gradients"));
  shown.iteration = ShownIteration{{.seconds = 20,
                                    .compute_seconds = 4,
                                    .step_seconds = 1,
                                    .waited_step = 15},
                                   4e6};
  const std::string text = print_text(times_view(shown), Ink());
  EXPECT_THAT(text, HasSubstr("waiting for collectives"));
  EXPECT_THAT(text, HasSubstr("15.0 s"));
  EXPECT_THAT(text, HasSubstr("4.00M tokens on all ranks, 200K tokens/s"));
  const Json json = parse_json(to_json(plan_view(shown)), {});
  EXPECT_EQ(json.at("predicted").at("iteration").at("waited_seconds"), 15);
}

TEST(PlanText, ShowsPhasesOfRulesThatRefresh) {
  EXPECT_THAT(print_text(phases_view(shown_plan({.rule = "soap"}).plan), Ink()),
              HasSubstr("chosen"));
  EXPECT_EQ(print_text(phases_view(shown_plan().plan), Ink()), "");
}

TEST(PlanText, WithoutMatricesThereAreNoOwners) {
  EXPECT_THAT(print_text(plan_view(shown_plan({.rule = "adamw"})), Ink()),
              HasSubstr("no owners"));
}

TEST(PlanJson, HoldsEveryRank) {
  const ReportPlan shown = shown_plan();
  const Json json = parse_json(to_json(plan_view(shown)), {});
  EXPECT_EQ(json.at("ranks").size(), 4U);
  EXPECT_EQ(json.at("mesh").at("tp"), 2);
  EXPECT_EQ(json.at("digest"), shown.plan.digest);
  EXPECT_EQ(json.at("num_matrices"), 6);
  EXPECT_TRUE(json.at("cost").at("nominal"));
  EXPECT_EQ(json.at("plan_seconds"), 0.001);
  EXPECT_FALSE(json.contains("phase_outlook"));
}

TEST(PlanJson, HoldsThePhaseOutlook) {
  const Json json =
      parse_json(to_json(plan_view(shown_plan({.rule = "soap"}))), {});
  EXPECT_GE(json.at("phase_outlook").size(), 2U);
}

}  // namespace
}  // namespace canzona::report::plan_view_test
