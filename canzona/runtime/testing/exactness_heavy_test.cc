// Twenty steps on every mesh and strategy, including refreshes, with and
// without clipping, with randomly delayed ranks: still one result.
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "canzona/base/random.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime::exactness_heavy_test {
namespace {

// Delays by up to two milliseconds, at a different moment on every rank and
// step.
void come_late(const Runtime& runtime, int64_t step) {
  const uint64_t chance =
      bits_at(static_cast<uint64_t>(runtime.coordinates().rank),
              static_cast<uint64_t>(step));
  if (chance % 3 == 0)
    std::this_thread::sleep_for(std::chrono::microseconds(chance % 2000));
}

class TwentySteps
    : public testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  std::string digest(const std::string& mesh, const std::string& strategy,
                     GradientKind gradients) const {
    const auto& [rule, clips] = GetParam();
    Trial trial;
    trial.plan = small_plan(toy_moe(), {.mesh = mesh,
                                        .strategy = strategy,
                                        .rule = rule,
                                        .options = quick(rule)});
    trial.gradients = gradients;
    trial.steps = 20;
    trial.clip_norm = clips ? 1e-4 : 0;
    trial.before_step = come_late;
    const TrialResult result = run_trial(trial);
    return result.parameters + result.states;
  }
};

TEST_P(TwentySteps, GiveOneResultOnEveryMeshWhereSumsAreExact) {
  std::set<std::string> seen;
  for (const std::string& mesh : many_meshes())
    for (const std::string& strategy : strategy_names()) {
      SCOPED_TRACE(cat(mesh, " ", strategy));
      seen.insert(digest(mesh, strategy, GradientKind::kExact));
      ASSERT_EQ(seen.size(), 1U);
    }
}

TEST_P(TwentySteps, GiveOneResultPerDpAndEpWithRandomGradients) {
  for (const std::string mesh : {"dp=4", "dp=2,ep=2"}) {
    std::set<std::string> seen;
    for (const std::string tp : {"", ",tp=2", ",tp=4"})
      for (const std::string& strategy : strategy_names()) {
        SCOPED_TRACE(cat(mesh, tp, " ", strategy));
        seen.insert(digest(mesh + tp, strategy, GradientKind::kRandom));
        ASSERT_EQ(seen.size(), 1U);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Runtime, TwentySteps,
                         testing::Combine(testing::Values("muon", "adamw",
                                                          "shampoo", "soap"),
                                          testing::Bool()),
                         [](const auto& of) {
                           return std::get<0>(of.param) + (std::get<1>(of.param)
                                                               ? "_clipped"
                                                               : "_free");
                         });

}  // namespace
}  // namespace canzona::runtime::exactness_heavy_test
