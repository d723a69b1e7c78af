// Frozen tensors are used like all others and never change: their gradients are
// not sent, and they have no states.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_trial.h"
#include "canzona/shapes/read_model.h"

namespace canzona::runtime::frozen_test {
namespace {

Model frozen_model() {
  Model model = toy_moe();
  freeze(model, {"*norm*", model.tensors.front().name, "layers.0.*"});
  return model;
}

class Frozen : public testing::TestWithParam<std::string> {};

TEST_P(Frozen, NeverChangeAndLeaveTheOthersAlone) {
  const Model model = frozen_model();
  std::set<std::pair<std::string, std::string>> seen;
  for (const std::string mesh : {"dp=4", "dp=4,tp=2"})
    for (const ZeroSizes& sizes : all_zero_sizes(4)) {
      SCOPED_TRACE(cat(mesh, " ", to_string(sizes)));
      const Trial trial{
          .plan = small_plan(model, {.mesh = mesh,
                                     .rule = GetParam(),
                                     .options = quick(GetParam()),
                                     .zero = to_string(sizes)}),
          .gradients = GradientKind::kRandom,
          .poison =
              [&](Runtime&, int64_t, int32_t tensor, std::span<float> g) {
                if (model.tensors[static_cast<size_t>(tensor)].frozen)
                  std::ranges::fill(g, std::nanf(""));
              },
          .at_end =
              [&](Runtime& runtime) {
                for (int32_t t = 0; t < std::ssize(model.tensors); ++t) {
                  const Tensor& tensor = model.tensors[static_cast<size_t>(t)];
                  if (!tensor.frozen || !runtime.holds(t)) continue;
                  const auto count = runtime.shard_elements(t);
                  std::vector<float> first(static_cast<size_t>(count));
                  make_parameter(tensor, runtime.plan().mesh.tp,
                                 runtime.coordinates().t, first);
                  std::vector<float> kept;
                  for (const auto& run : runtime.kept_runs(t))
                    kept.insert(kept.end(), first.begin() + run.first,
                                first.begin() + run.first + run.count);
                  std::vector<float> now(kept.size());
                  runtime.get_kept(t, now);
                  EXPECT_EQ(now, kept) << tensor.name;
                }
              }};
      const TrialResult result = run_trial(trial);
      seen.emplace(result.parameters, result.states);
      ASSERT_EQ(seen.size(), 1U);
      for (const StepOutcome& outcome : result.outcomes)
        EXPECT_FALSE(outcome.skipped);
      const std::vector<RankCost> predicted = predict(trial.plan);
      for (size_t r = 0; r < predicted.size(); ++r) {
        EXPECT_EQ(result.memory[r].total(), predicted[r].memory.total());
        EXPECT_EQ(result.memory[r].gradients, predicted[r].memory.gradients);
      }
    }
}

TEST(FrozenPlans, SpareStatesAndTraffic) {
  const PlanWish wish{.mesh = "dp=4", .rule = "adamw", .zero = "hier:2"};
  const RankCost all = predict(small_plan(toy_moe(), wish))[0];
  const RankCost some = predict(small_plan(frozen_model(), wish))[0];
  EXPECT_EQ(some.memory.parameters, all.memory.parameters);
  EXPECT_LT(some.memory.states, all.memory.states);
  EXPECT_LT(some.bytes_sent(), all.bytes_sent());
}

TEST(FrozenPlans, NameAPatternThatFitsNothing) {
  Model model = toy_moe();
  EXPECT_THROW(freeze(model, {"nothing like it"}), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Rules, Frozen,
                         testing::Values("muon", "soap", "adamw"));

}  // namespace
}  // namespace canzona::runtime::frozen_test
