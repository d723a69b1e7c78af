// The step's result does not depend on the plan.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime::exactness_test {
namespace {

struct Digests {
  std::string parameters, states;
  auto operator<=>(const Digests&) const = default;
};

Digests digests_of(const Trial& trial) {
  const TrialResult result = run_trial(trial);
  return {result.parameters, result.states};
}

class EveryRule : public testing::TestWithParam<std::string> {
 protected:
  PlanWish wish(const std::string& mesh, const std::string& strategy) const {
    return {.mesh = mesh,
            .strategy = strategy,
            .rule = GetParam(),
            .options = quick(GetParam())};
  }
};

TEST_P(EveryRule, D9GivesOneResultOnEveryMeshWhereSumsAreExact) {
  std::set<Digests> seen;
  for (const std::string& mesh : many_meshes())
    for (const std::string& strategy : strategy_names()) {
      SCOPED_TRACE(cat(mesh, " ", strategy));
      seen.insert(digests_of(
          {.plan = small_plan(toy_moe(), wish(mesh, strategy)), .steps = 4}));
      ASSERT_EQ(seen.size(), 1U);
    }
}

TEST_P(EveryRule, GivesOneResultPerDpAndEpWithRandomGradients) {
  for (const std::string mesh : {"dp=2", "dp=4", "dp=7", "dp=2,ep=2"}) {
    std::set<Digests> seen;
    for (const std::string tp : {"", ",tp=2", ",tp=4"})
      for (const std::string& strategy : strategy_names())
        for (const int64_t bucket : {500, 100'000}) {
          if (mesh == "dp=7" && tp == ",tp=4") continue;  // 28 threads
          SCOPED_TRACE(cat(mesh, tp, " ", strategy, " ", bucket));
          PlanWish wanted = wish(mesh + tp, strategy);
          wanted.bucket_elements = bucket;
          seen.insert(digests_of({.plan = small_plan(toy_moe(), wanted),
                                  .gradients = GradientKind::kRandom,
                                  .clip_norm = 0.5}));
          ASSERT_EQ(seen.size(), 1U);
        }
  }
}

TEST_P(EveryRule, GivesOneResultForEverySplitOverTpAndStrategies) {
  for (const std::string split : {"qkv", "head", "qkv,gate-up"}) {
    std::set<Digests> seen;
    for (const std::string mesh : {"dp=1", "dp=3", "tp=2", "tp=4", "dp=2,tp=2"})
      for (const std::string& strategy : strategy_names()) {
        SCOPED_TRACE(cat(split, " ", mesh, " ", strategy));
        PlanWish wanted = wish(mesh, strategy);
        wanted.split = split;
        seen.insert(digests_of({.plan = small_plan(toy_model(), wanted)}));
        ASSERT_EQ(seen.size(), 1U);
      }
  }
}

TEST_P(EveryRule, GivesOneResultWithEveryMicroGroupModeAndWithoutPipeline) {
  std::set<Digests> seen;
  for (const std::string& mode : micro_group_modes())
    for (const bool pipelined : {false, true}) {
      SCOPED_TRACE(cat(mode, pipelined ? " pipelined" : " serial"));
      PlanWish wanted = wish("dp=2,tp=2", "balanced");
      wanted.micro_groups = mode;
      seen.insert(digests_of({.plan = small_plan(toy_moe(), wanted),
                              .options = {.pipelined = pipelined}}));
      ASSERT_EQ(seen.size(), 1U);
    }
}

TEST_P(EveryRule, GivesOneResultOverStrategiesWithBf16ParametersAndWire) {
  std::set<Digests> seen;
  for (const std::string tp : {"", ",tp=2"})
    for (const std::string& strategy : strategy_names()) {
      SCOPED_TRACE(cat(tp, " ", strategy));
      PlanWish wanted = wish("dp=4" + tp, strategy);
      wanted.parameters = DType::kBf16;
      seen.insert(digests_of({.plan = small_plan(toy_model(), wanted),
                              .gradients = GradientKind::kRandom,
                              .options = {.wire = DType::kBf16}}));
      ASSERT_EQ(seen.size(), 1U);
    }
}

TEST_P(EveryRule, GivesOneResultInBothFormsOfMasters) {
  for (const std::string zero : {"zero1", "z1=2,z2=2,z3=2"})
    for (const std::string mesh : {"dp=2", "dp=4,tp=2", "dp=2,ep=2,tp=2"}) {
      SCOPED_TRACE(mesh + " " + zero);
      std::set<Digests> seen;
      std::set<int64_t> bytes;
      for (const MasterForm form : {MasterForm::kFp32, MasterForm::kRemainder})
        for (const std::string strategy : {"balanced", "replicated"}) {
          if (strategy == "replicated" && zero != "zero1") continue;
          PlanWish wanted = wish(mesh, strategy);
          wanted.parameters = DType::kBf16;
          wanted.master = form;
          wanted.zero = zero;
          const Plan plan = small_plan(toy_moe(), wanted);
          const TrialResult result =
              run_trial({.plan = plan,
                         .gradients = GradientKind::kRandom,
                         .steps = 20,
                         .clip_norm = 0.5});
          seen.insert({result.parameters, result.states});
          if (strategy == "balanced")
            bytes.insert(plan.summary.memory_per_rank_max.value());
        }
      EXPECT_EQ(seen.size(), 1U);
      EXPECT_EQ(bytes.size(), 2U);
    }
}

// The digest detects a tiny change in one element of one rank's gradient.
TEST_P(EveryRule, NoticesTheSmallestDifference) {
  const Model model = toy_model();
  const Plan plan = small_plan(model, wish("dp=2,tp=2", "balanced"));
  const int32_t qkv = 2;
  ASSERT_EQ(model.tensors[qkv].name, "layers.0.qkv");
  const Digests right = digests_of({.plan = plan, .steps = 1});
  const Digests other = digests_of(
      {.plan = plan, .steps = 1, .set_parameters = [&](Runtime& runtime) {
         if (runtime.coordinates().t != 1) return;
         std::vector<float> shard(
             static_cast<size_t>(runtime.shard_elements(qkv)));
         runtime.get_parameter(qkv, shard);
         shard[3] = std::nextafter(shard[3], 1.0F);
         runtime.set_parameter(qkv, shard);
       }});
  EXPECT_NE(right.parameters, other.parameters);
  EXPECT_EQ(right.states, other.states);
}

TEST(TwoFields, GiveOneResultOverStrategiesAndTp) {
  std::set<Digests> seen;
  for (const std::string mesh : {"dp=2", "dp=2,tp=2", "tp=4"})
    for (const std::string& strategy : strategy_names()) {
      SCOPED_TRACE(cat(mesh, " ", strategy));
      seen.insert(
          digests_of({.plan = small_plan(
                          toy_model(), {.mesh = mesh,
                                        .strategy = strategy,
                                        .rule = "soap",
                                        .options = {{"decay_form", "l2"},
                                                    {"l2_in_factors", "off"},
                                                    {"weight_decay", "0.1"}}}),
                      .steps = 4}));
      ASSERT_EQ(seen.size(), 1U);
    }
}

INSTANTIATE_TEST_SUITE_P(Runtime, EveryRule,
                         testing::Values("muon", "muon_nanochat", "muon_muonh",
                                         "adamw", "shampoo", "soap"),
                         [](const auto& of) { return of.param; });

}  // namespace
}  // namespace canzona::runtime::exactness_test
