// The step's result does not depend on the plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/plan/toy_model.h"
#include "canzona/runtime/test_trial.h"

namespace canzona {
namespace {

Plan plan_of(const Model& model, const std::string& mesh,
             const std::string& strategy, const std::string& rule,
             const RuleOptions& options = {}, const std::string& split = "none",
             int64_t bucket_elements = 3000) {
  PlanOptions wanted;
  wanted.strategy = strategy;
  wanted.splits = parse_splits(split);
  wanted.bucket_elements = bucket_elements;
  wanted.capacity_bytes = 8192;
  wanted.parameters = ParameterDtype::kFp32;
  const auto facts = make_rule_facts(rule, options);
  return make_plan({model, parse_mesh(mesh), *facts, wanted});
}

RuleOptions quick(const std::string& rule) {
  if (rule == "soap" || rule == "shampoo") return {{"period", "3"}};
  return {};
}

class EveryRule : public testing::TestWithParam<std::string> {};

TEST_P(EveryRule, GivesOneResultOnEveryMeshWhereSumsAreExact) {
  const Model model = toy_moe();
  TrialResult first;
  for (const std::string mesh :
       {"dp=1", "dp=2", "dp=4", "dp=7", "tp=2", "tp=4", "dp=2,tp=2",
        "dp=4,tp=2", "dp=2,ep=2,tp=2"})
    for (const std::string& strategy : strategy_names()) {
      SCOPED_TRACE(cat(mesh, " ", strategy));
      const TrialResult result = run_trial(
          {.plan = plan_of(model, mesh, strategy, GetParam(),
                           quick(GetParam()))});
      if (first.parameters.empty()) first = result;
      EXPECT_EQ(result.parameters, first.parameters);
      EXPECT_EQ(result.states, first.states);
    }
}

INSTANTIATE_TEST_SUITE_P(Runtime, EveryRule,
                         testing::Values("muon", "adamw", "shampoo", "soap"));

}  // namespace
}  // namespace canzona
