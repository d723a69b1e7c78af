// Random models, meshes and plans give the same result.
#include <gmock/gmock.h>

#include "canzona/plan/testing/test_random.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime::property_test {
namespace {

Mesh random_small_mesh(Random& random) {
  while (true) {
    const Mesh mesh = random_mesh(random);
    if (mesh.world() <= 16) return mesh;
  }
}

Plan random_plan(Random& random, const Model& model, const Mesh& mesh,
                 const RuleChoice& rule) {
  PlanOptions options = random_options(random);
  const StrategyInfo strategy = random.pick(strategies());
  options.strategy = strategy.name;
  if (!strategy.default_micro_groups.empty())
    options.micro_groups = random.pick(micro_group_modes());
  options.parameters = DType::kFp32;
  const auto facts =
      make_rule_facts(rule.name, with_device(rule.name, rule.options, "cpu"));
  return make_plan({model, mesh, *facts, options});
}

std::string shapes_of(const Model& model) {
  std::string text;
  for (const Tensor& t : model.tensors)
    text +=
        cat(t.name, " ", t.rows(), "x", t.cols(), " ", to_string(t.cut), "; ");
  return text;
}

TEST(RandomPlans, GiveTheResultOfOneRank) {
  Random random(4711);
  for (int trial = 0; trial < 60; ++trial) {
    const Mesh mesh = random_small_mesh(random);
    const Model model = random_model(random, mesh);
    const RuleChoice rule = random_rule(random);
    SCOPED_TRACE(cat("trial ", trial, ": ", shapes_of(model)));
    const TrialResult one = run_trial(
        {.plan = random_plan(random, model, Mesh{}, rule), .steps = 5});
    for (int again = 0; again < 3; ++again) {
      const Plan plan = random_plan(random, model, mesh, rule);
      SCOPED_TRACE(cat(to_string(mesh), " ", rule.name, " ",
                       plan.options.strategy, " ", plan.options.micro_groups));
      const TrialResult many = run_trial({.plan = plan, .steps = 5});
      ASSERT_EQ(many.parameters, one.parameters);
      ASSERT_EQ(many.states, one.states);
    }
  }
}

// Element-wise rules may be cut anywhere: here at every offset of 64 elements.
TEST(ElementWise, DoesNotDependOnWhereItIsCut) {
  std::set<std::string> seen;
  for (int64_t offset = 0; offset < 64; ++offset) {
    const Model model =
        model_of({adamw_tensor("a", 200), adamw_tensor("b", 333)});
    const auto facts = make_rule_facts("adamw", {});
    PlanOptions options;
    options.parameters = DType::kFp32;
    Plan plan = make_plan({model, parse_mesh("dp=3"), *facts, options});
    std::vector<int64_t>& cuts = plan.parts[0].buckets.at(0).adamw_cuts;
    ASSERT_EQ(cuts.size(), 4U);
    cuts = {0, 100 + offset, 301 + 3 * offset, 533};
    const TrialResult result = run_trial(
        {.plan = plan, .gradients = GradientKind::kRandom, .steps = 3});
    seen.insert(result.parameters + result.states);
    ASSERT_EQ(seen.size(), 1U) << offset;
  }
}

TEST(Models, WithoutElementsOrWithFewerMatricesThanRanksRun) {
  const Model model =
      model_of({matrix_tensor("empty", 0, 5), matrix_tensor("one", 1, 1),
                adamw_tensor("none", 0)});
  for (const std::string strategy : {"replicated", "layerwise", "balanced"}) {
    const auto facts = make_rule_facts("muon", with_device("muon", {}, "cpu"));
    PlanOptions options;
    options.strategy = strategy;
    const Plan plan = make_plan({model, parse_mesh("dp=4"), *facts, options});
    EXPECT_FALSE(run_trial({.plan = plan}).parameters.empty());
  }
}

}  // namespace
}  // namespace canzona::runtime::property_test
