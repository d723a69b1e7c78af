// The runtime exports and imports its states by name, whatever the plan.
#include <gtest/gtest.h>

#include <optional>

#include "canzona/base/text.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_states.h"
#include "canzona/runtime/testing/test_trial.h"
#include "canzona/shapes/read_model.h"

namespace canzona::runtime::states_test {
namespace {

// Plans of many kinds that all give the same bits with exact sums.
std::vector<PlanWish> many_wishes(const std::string& rule) {
  std::vector<PlanWish> wishes;
  for (const std::string mesh :
       {"dp=1", "dp=3", "dp=2,tp=2", "tp=4", "dp=2,ep=2,tp=2"})
    for (const std::string strategy : {"balanced", "replicated", "megatron"})
      wishes.push_back({.mesh = mesh, .strategy = strategy});
  for (const std::string zero :
       {"z1=2,z2=1,z3=1", "z1=2,z2=2,z3=1", "z1=2,z2=2,z3=2", "z1=4,z2=2,z3=2",
        "z1=4,z2=4,z3=4"})
    for (const std::string tp : {"", ",tp=2"})
      wishes.push_back({.mesh = "dp=4" + tp, .zero = zero});
  PlanWish experts{.mesh = "dp=2,ep=2", .zero = "z1=4,z2=2,z3=1"};
  experts.zero_options.experts = parse_zero("z1=2,z2=2,z3=2", 2);
  wishes.push_back(experts);
  for (PlanWish& wish : wishes) {
    wish.rule = rule;
    wish.options = quick(rule);
  }
  return wishes;
}

std::string to_string(const PlanWish& wish) {
  return cat(wish.mesh, " ", wish.strategy, " ", wish.zero);
}

class StatesOfRule : public testing::TestWithParam<std::string> {};

TEST_P(StatesOfRule, AreGivenOnceAndAreTheSameTensorsOnEveryPlan) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const PlanWish& wish : many_wishes(GetParam())) {
    SCOPED_TRACE(to_string(wish));
    WholeStates states;
    run_trial({.plan = small_plan(toy_moe(), wish),
               .steps = 1,
               .at_end = [&](Runtime& r) { states.collect(r); }});
    std::map<std::string, std::vector<int64_t>> found;
    for (const auto& [name, whole] : states.tensors()) {
      found[name] = whole.shape;
      for (size_t i = 0; i < whole.given.size(); ++i)
        ASSERT_EQ(whole.given[i], 1) << name << " element " << i;
    }
    if (shapes.empty()) shapes = found;
    ASSERT_EQ(found, shapes);
  }
  for (const Tensor& tensor : toy_moe().tensors)
    EXPECT_EQ(shapes.at("model/" + tensor.name), tensor.shape);
}

// Three steps on one plan and three on another equal six on one: the last ones
// cross a refresh of factors and bases.
TEST_P(StatesOfRule, GoOnOnAnotherPlanAsIfNothingHadHappened) {
  const std::vector<PlanWish> wishes = many_wishes(GetParam());
  const TrialResult straight =
      run_trial({.plan = small_plan(toy_moe(), wishes[0]), .steps = 6});
  for (size_t i = 0; i < wishes.size(); ++i) {
    const PlanWish& from = wishes[i];
    const PlanWish& to = wishes[(i * 7 + 5) % wishes.size()];
    SCOPED_TRACE(cat(to_string(from), " -> ", to_string(to)));
    WholeStates states;
    run_trial({.plan = small_plan(toy_moe(), from),
               .steps = 3,
               .at_end = [&](Runtime& r) { states.collect(r); }});
    const TrialResult rest =
        run_trial({.plan = small_plan(toy_moe(), to),
                   .steps = 3,
                   .set_parameters = [&](Runtime& r) { states.hand_to(r); },
                   .number_of_step = [](int64_t step) { return step + 3; }});
    ASSERT_EQ(rest.parameters, straight.parameters);
    ASSERT_EQ(rest.states, straight.states);
  }
}

TEST_P(StatesOfRule, OfBf16ParametersAreMastersAndGoOnAnywhere) {
  PlanWish wish{.mesh = "dp=2,tp=2",
                .rule = GetParam(),
                .options = quick(GetParam()),
                .parameters = DType::kBf16};
  const Plan plan = small_plan(toy_moe(), wish);
  const TrialResult straight = run_trial({.plan = plan, .steps = 4});
  WholeStates states;
  run_trial({.plan = plan, .steps = 2, .at_end = [&](Runtime& r) {
               states.collect(r);
             }});
  for (const auto& [name, whole] : states.tensors())
    for (const int times : whole.given) ASSERT_EQ(times, 1) << name;
  for (const std::string zero : {"zero1", "z1=4,z2=4,z3=4"})
    for (const std::string mesh : {"dp=4", "dp=4,tp=2"}) {
      SCOPED_TRACE(mesh + " " + zero);
      wish.mesh = mesh;
      wish.zero = zero;
      const TrialResult rest =
          run_trial({.plan = small_plan(toy_moe(), wish),
                     .steps = 2,
                     .set_parameters = [&](Runtime& r) { states.hand_to(r); },
                     .number_of_step = [](int64_t step) { return step + 2; }});
      ASSERT_EQ(rest.parameters, straight.parameters);
      ASSERT_EQ(rest.states, straight.states);
    }
}

TEST_P(StatesOfRule, OfMastersGoOnInTheOtherForm) {
  const auto wish = [](MasterForm form) {
    return PlanWish{.mesh = "dp=2,tp=2",
                    .rule = GetParam(),
                    .options = quick(GetParam()),
                    .parameters = DType::kBf16,
                    .master = form};
  };
  constexpr MasterForm kForms[] = {MasterForm::kFp32, MasterForm::kRemainder};
  const TrialResult straight =
      run_trial({.plan = small_plan(toy_moe(), wish(kForms[0])), .steps = 4});
  for (const MasterForm first : kForms)
    for (const MasterForm then : kForms) {
      SCOPED_TRACE(cat(to_string(first), " ", to_string(then)));
      WholeStates states;
      run_trial({.plan = small_plan(toy_moe(), wish(first)),
                 .steps = 2,
                 .at_end = [&](Runtime& r) { states.collect(r); }});
      const TrialResult rest =
          run_trial({.plan = small_plan(toy_moe(), wish(then)),
                     .steps = 2,
                     .set_parameters = [&](Runtime& r) { states.hand_to(r); },
                     .number_of_step = [](int64_t step) { return step + 2; }});
      EXPECT_EQ(rest.parameters, straight.parameters);
      EXPECT_EQ(rest.states, straight.states);
    }
}

TEST_P(StatesOfRule, OfFrozenTensorsAreTheirWeightsAlone) {
  Model model = toy_moe();
  freeze(model, {model.tensors[2].name});
  for (const std::string zero : {"zero1", "z1=2,z2=2,z3=2"}) {
    SCOPED_TRACE(zero);
    WholeStates states;
    run_trial(
        {.plan = small_plan(
             model, {.mesh = "dp=2,tp=2", .rule = GetParam(), .zero = zero}),
         .steps = 1,
         .at_end = [&](Runtime& r) { states.collect(r); }});
    for (const auto& [name, whole] : states.tensors()) {
      for (const int times : whole.given) ASSERT_EQ(times, 1) << name;
      EXPECT_TRUE(name == "model/" + model.tensors[2].name ||
                  name.find(model.tensors[2].name) == std::string::npos)
          << name;
    }
    EXPECT_TRUE(states.tensors().contains("model/" + model.tensors[2].name));
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, StatesOfRule,
                         testing::Values("muon", "muon_nanochat", "muon_muonh",
                                         "adamw", "shampoo", "soap"),
                         [](const auto& rule) { return rule.param; });

TEST(States, RefuseOtherCountsOfValuesAndNegativeSteps) {
  const auto refuses = [](Runtime& runtime) {
    EXPECT_THROW(runtime.take_over(-1), UsageError);
    std::optional<RankState> first;
    runtime.for_each_state([&](const RankState& state) {
      if (!first) first = state;
    });
    runtime.set_state(*first, std::vector<float>(3));
  };
  EXPECT_THROW(
      run_trial(
          {.plan = small_plan(toy_model(), {}), .steps = 0, .at_end = refuses}),
      UsageError);
}

}  // namespace
}  // namespace canzona::runtime::states_test
