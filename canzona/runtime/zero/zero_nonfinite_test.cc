// A non-finite gradient on one rank while modules are in transit: the step is
// skipped everywhere, and the run continues as if the batch had never existed.
#include <gtest/gtest.h>

#include <limits>

#include "canzona/runtime/zero/test_zero.h"

namespace canzona::runtime::zero_nonfinite_test {
namespace {

constexpr int64_t kBadStep = 2;
constexpr int kCulprit = 2;

// Gradients of steps 1, 2, 3, …; optionally with a bad step in between that
// does not count.
Trial run_of(const Plan& plan, bool with_bad_step) {
  Trial trial{.plan = plan,
              .gradients = GradientKind::kRandom,
              .steps = with_bad_step ? 5 : 4,
              .micro_batches = 2};
  trial.number_of_step = [=](int64_t step) {
    if (!with_bad_step || step < kBadStep) return step;
    return step == kBadStep ? 77 : step - 1;
  };
  return trial;
}

class BadGradient
    : public testing::TestWithParam<std::tuple<ZeroSizes, Overlap>> {};

TEST_P(BadGradient, SkipsTheStepEverywhere) {
  const auto& [sizes, overlap] = GetParam();
  const Model model = toy_model(3);
  const Plan plan = zero_plan(model, 4, {.sizes = sizes, .prefetch = 2});
  Trial good = run_of(plan, false), bad = run_of(plan, true);
  good.options.overlap = bad.options.overlap = overlap;
  // A layer in the middle of backward, in its last row: the last slice.
  const int32_t tensor = 7;
  ASSERT_EQ(model.tensors[tensor].name, "layers.1.qkv");
  bad.poison = [&](Runtime& runtime, int64_t step, int32_t t,
                   std::span<float> gradient) {
    if (step == kBadStep && t == tensor &&
        runtime.coordinates().rank == kCulprit)
      gradient.back() = std::numeric_limits<float>::infinity();
  };
  bad.at_end = [](Runtime& runtime) {
    EXPECT_EQ(runtime.pool_use().slots_now, 0);
    EXPECT_EQ(runtime.steps_done(), 4);
  };
  const TrialResult expected = run_trial(good), got = run_trial(bad);
  EXPECT_EQ(got.parameters, expected.parameters);
  EXPECT_EQ(got.states, expected.states);
  for (size_t i = 0; i < got.outcomes.size(); ++i)
    EXPECT_EQ(got.outcomes[i].skipped, i + 1 == kBadStep);
  const StepOutcome& skipped = got.outcomes[kBadStep - 1];
  EXPECT_EQ(skipped.nonfinite_tensor, "layers.1.qkv");
  EXPECT_EQ(skipped.nonfinite_rank, kCulprit);
}

INSTANTIATE_TEST_SUITE_P(
    Zero, BadGradient,
    testing::Combine(testing::Values(ZeroSizes{4, 4, 4}, ZeroSizes{4, 2, 2},
                                     ZeroSizes{2, 2, 2}, ZeroSizes{4, 2, 4},
                                     ZeroSizes{4, 4, 1}, ZeroSizes{4, 1, 4},
                                     ZeroSizes{1, 1, 1}),
                     testing::Values(Overlap::kNone, Overlap::kMain,
                                     Overlap::kBackground)),
    [](const auto& of) {
      const ZeroSizes& sizes = std::get<0>(of.param);
      return cat("z", sizes.z1, sizes.z2, sizes.z3, "_",
                 to_string(std::get<1>(of.param)));
    });

// Finite on every rank, but their sum is not.
TEST(BadSum, SkipsTheStepEverywhere) {
  for (const ZeroSizes& sizes :
       std::vector<ZeroSizes>{{4, 4, 4}, {4, 2, 4}, {2, 2, 1}, {2, 1, 2}}) {
    const Plan plan = zero_plan(toy_model(), 4, {.sizes = sizes});
    Trial good = run_of(plan, false), bad = run_of(plan, true);
    bad.poison = [&](Runtime&, int64_t step, int32_t t,
                     std::span<float> gradient) {
      if (step == kBadStep && t == 0)
        gradient.back() = std::numeric_limits<float>::max() / 3;
    };
    const TrialResult expected = run_trial(good), got = run_trial(bad);
    EXPECT_EQ(got.parameters, expected.parameters);
    EXPECT_EQ(got.states, expected.states);
    EXPECT_TRUE(got.outcomes[kBadStep - 1].skipped);
  }
}

}  // namespace
}  // namespace canzona::runtime::zero_nonfinite_test
