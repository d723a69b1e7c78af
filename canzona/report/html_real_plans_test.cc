// The report of real plans: every rule and strategy on meshes of all axes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/plan/make_plan.h"
#include "canzona/report/html_report.h"
#include "canzona/shapes/read_model.h"

namespace canzona::html_real_plans_test {
namespace {

using testing::HasSubstr;
using testing::Not;

ReportPlan plan_with(const Model& model, const char* mesh, const char* rule,
                     const std::string& strategy) {
  const auto facts = make_rule_facts(rule, {});
  PlanOptions options;
  options.strategy = strategy;
  ReportPlan shown;
  shown.plan = make_plan({.model = model,
                          .mesh = parse_mesh(mesh),
                          .rule = *facts,
                          .options = options});
  shown.ranks = predict(shown.plan);
  shown.balance = measure_balance(shown.plan);
  return shown;
}

void expect_report(const Model& model, const char* mesh, const char* rule) {
  std::vector<ReportPlan> plans;
  for (const StrategyInfo& info : strategies()) {
    try {
      plans.push_back(plan_with(model, mesh, rule, info.name));
    } catch (const UsageError&) {
      continue;  // not every strategy takes every mesh
    }
  }
  ASSERT_GE(plans.size(), 2u) << mesh;
  const std::string html = html_report(plans);
  EXPECT_THAT(html, HasSubstr("</html>")) << mesh;
  EXPECT_THAT(html, Not(HasSubstr("nan"))) << mesh;
  for (const ReportPlan& shown : plans) {
    EXPECT_THAT(html_report({shown}), HasSubstr("</html>"))
        << shown.plan.options.strategy;
  }
}

TEST(HtmlRealPlans, DenseModelOnAllMeshes) {
  const Model model = read_model("qwen3-0.6b", {});
  for (const char* mesh : {"dp=1", "dp=8", "dp=4,tp=2", "dp=2,tp=2,pp=2",
                           "dp=2,cp=2,tp=2", "dp=32,tp=8"}) {
    expect_report(model, mesh, "muon");
  }
}

TEST(HtmlRealPlans, EveryRule) {
  const Model model = read_model("qwen3-0.6b", {.fused = true});
  for (const char* rule : {"muon", "shampoo", "soap"}) {
    expect_report(model, "dp=4,tp=2", rule);
  }
}

TEST(HtmlRealPlans, AdamWAloneHasNoMatrices) {
  Model model = read_model("qwen3-0.6b", {});
  route(model, {{"*", false}});
  expect_report(model, "dp=4,tp=2", "muon");
}

}  // namespace
}  // namespace canzona::html_real_plans_test
