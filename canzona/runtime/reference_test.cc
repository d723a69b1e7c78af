// Every plan leads to what one rank alone would have computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/comm/thread/run_ranks.h"
#include "canzona/plan/toy_model.h"
#include "canzona/runtime/test_reference.h"

namespace canzona {
namespace {

struct Case {
  std::string rule = "muon";
  std::string mesh = "dp=2,tp=2";
  GradientKind gradients = GradientKind::kRandom;
  RuleOptions rule_options = {};
  std::string split = "none";
  ParameterDtype parameters = ParameterDtype::kFp32;
  double clip_norm = 0;
  RuntimeOptions runtime = {};
};

Plan plan_for(const Case& wanted, const std::string& strategy) {
  PlanOptions options;
  options.strategy = strategy;
  options.splits = parse_splits(wanted.split);
  options.bucket_elements = 3000;
  options.capacity_bytes = 4096;
  options.parameters = wanted.parameters;
  const auto facts = make_rule_facts(wanted.rule, wanted.rule_options);
  return make_plan({toy_moe(), parse_mesh(wanted.mesh), *facts, options});
}

StepSettings settings_of(const Case& wanted, const Mesh& mesh) {
  return {.learning_rate = 0.01,
          .adamw_learning_rate = 0.003,
          .gradient_factor = gradient_factor(wanted.gradients, mesh),
          .clip_norm = wanted.clip_norm};
}

using Digests = std::pair<std::string, std::string>;
constexpr int kSteps = 7;

Digests by_reference(const Case& wanted) {
  const Plan plan = plan_for(wanted, "replicated");
  Reference reference(plan, wanted.gradients, wanted.runtime);
  for (int i = 0; i < kSteps; ++i)
    reference.step(settings_of(wanted, plan.mesh));
  return {reference.parameter_digest(), reference.state_digest()};
}

void make_tensor(Runtime& runtime, int32_t t, GradientKind kind, int64_t step) {
  const Plan& plan = runtime.plan();
  const Tensor& tensor = plan.model.tensors[static_cast<size_t>(t)];
  const auto count = static_cast<size_t>(runtime.shard_elements(t));
  const RankPlace& place = runtime.place();
  if (step == 0) {
    std::vector<float> shard(count);
    make_parameter(tensor, plan.mesh.tp, place.t, shard);
    runtime.set_parameter(t, shard);
    return;
  }
  const Buffer& buffer = plan.buffer_of(t);
  make_gradient({kind, place.home_in(buffer), buffer.num_homes, step}, tensor,
                plan.mesh.tp, place.t, {runtime.gradient(t), count});
  runtime.grad_ready(t);
}

Digests by_ranks(const Case& wanted, const std::string& strategy) {
  const Plan plan = plan_for(wanted, strategy);
  Digests digests;
  run_ranks(plan.mesh.world(), [&](Communicator& world) {
    const auto engine = make_cpu_engine();
    Runtime runtime(plan, world, *engine, wanted.runtime);
    for (int64_t step = 0; step <= kSteps; ++step) {
      for (int32_t t = 0; t < std::ssize(plan.model.tensors); ++t)
        if (runtime.holds(t)) make_tensor(runtime, t, wanted.gradients, step);
      if (step > 0) runtime.step(settings_of(wanted, plan.mesh));
    }
    const Digests own = {runtime.parameter_digest(), runtime.state_digest()};
    if (world.rank() == 0) digests = own;
  });
  return digests;
}

void expect_reference(const Case& wanted) {
  const Digests expected = by_reference(wanted);
  for (const std::string& strategy : strategy_names())
    EXPECT_EQ(by_ranks(wanted, strategy), expected)
        << strategy << " on " << wanted.mesh << " with " << wanted.rule;
}

TEST(Reference, EveryMeshAddsByTheTree) {
  for (const std::string mesh :
       {"dp=1", "dp=7", "tp=2", "dp=3,tp=2", "dp=2,ep=2,tp=2"})
    expect_reference({.mesh = mesh});
}

TEST(Reference, EveryRuleCrossesItsRefreshes) {
  for (const std::string rule : {"shampoo", "soap"})
    expect_reference(
        {.rule = rule,
         .rule_options = {{"precondition_frequency", "3"}, {"phases", "2"}}});
  expect_reference({.rule = "adamw"});
}

TEST(Reference, EverySplit) {
  for (const std::string split : {"qkv", "head", "qkv,gate-up"})
    expect_reference({.split = split});
}

TEST(Reference, ClippingAndExactSums) {
  expect_reference({.gradients = GradientKind::kExact, .clip_norm = 1e-6});
  expect_reference({.mesh = "dp=4", .clip_norm = 1e-3});
}

TEST(Reference, NarrowWiresAndParameters) {
  RuntimeOptions narrow;
  narrow.wire = GradientWire::kBf16;
  expect_reference({.mesh = "dp=3", .runtime = narrow});
  expect_reference({.parameters = ParameterDtype::kBf16});
}

TEST(Reference, GroupsOfTensorsDecayAndLearnApart) {
  RuntimeOptions groups;
  groups.groups = {{"*norm*", 0.0, 2.0}, {"*fc1*", 0.3, 0.5}};
  expect_reference({.runtime = groups});
}

// The reference itself: another order of additions shows.
TEST(Reference, DependsOnTheNumberOfHomes) {
  EXPECT_NE(by_reference({.mesh = "dp=2"}), by_reference({.mesh = "dp=4"}));
  const GradientKind exact = GradientKind::kExact;
  EXPECT_EQ(by_reference({.mesh = "dp=2", .gradients = exact}),
            by_reference({.mesh = "dp=4", .gradients = exact}));
}

}  // namespace
}  // namespace canzona
