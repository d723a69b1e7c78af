// The same plans with all ranks sharing one GPU: one result on every mesh, and
// AdamW's has the bits of the CPU.
#include <gtest/gtest.h>

#include <set>

#include "canzona/linalg/cuda_device.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime::exactness_cuda_test {
namespace {

class EveryRuleOnGpu : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string why;
    if (!find_cuda_device(&why)) GTEST_SKIP() << why;
  }
  Plan plan(const std::string& mesh, const std::string& strategy,
            const std::string& device = "cuda") const {
    return small_plan(toy_moe(), {.mesh = mesh,
                                  .strategy = strategy,
                                  .rule = GetParam(),
                                  .options = quick(GetParam()),
                                  .device = device});
  }
};

TEST_P(EveryRuleOnGpu, GivesOneResultOnEveryMeshWhereSumsAreExact) {
  std::set<std::string> seen;
  for (const std::string& mesh : many_meshes())
    for (const std::string& strategy : strategy_names()) {
      SCOPED_TRACE(cat(mesh, " ", strategy));
      const TrialResult result = run_trial(
          {.plan = plan(mesh, strategy), .device = "cuda", .steps = 4});
      seen.insert(result.parameters + result.states);
      ASSERT_EQ(seen.size(), 1U);
    }
}

TEST_P(EveryRuleOnGpu, GivesOneResultInBothFormsOfMasters) {
  for (const std::string mesh : {"dp=2", "dp=2,tp=2"}) {
    std::set<std::string> seen;
    for (const MasterForm form : {MasterForm::kFp32, MasterForm::kRemainder}) {
      const Plan planned = small_plan(toy_moe(), {.mesh = mesh,
                                                  .rule = GetParam(),
                                                  .options = quick(GetParam()),
                                                  .device = "cuda",
                                                  .parameters = DType::kBf16,
                                                  .master = form});
      const TrialResult result =
          run_trial({.plan = planned, .device = "cuda", .steps = 20});
      seen.insert(result.parameters + result.states);
    }
    EXPECT_EQ(seen.size(), 1U) << mesh;
  }
}

TEST_P(EveryRuleOnGpu, SendsAndReservesWhatThePlanSaid) {
  for (const std::string mesh : {"dp=2", "dp=2,tp=2"}) {
    const Plan planned = plan(mesh, "balanced");
    const std::vector<RankCost> predicted = predict(planned);
    const TrialResult result =
        run_trial({.plan = planned, .device = "cuda", .steps = 1});
    for (size_t r = 0; r < predicted.size(); ++r) {
      EXPECT_EQ(result.sent[r].total(), predicted[r].bytes_sent());
      EXPECT_EQ(result.memory[r].total(), predicted[r].memory.total());
    }
  }
}

TEST_P(EveryRuleOnGpu, ClipsAndSkipsAsTheCpuDoes) {
  const auto outcomes = [&](const std::string& device) {
    return run_trial({.plan = plan("dp=2,tp=2", "balanced", device),
                      .device = device,
                      .gradients = GradientKind::kRandom,
                      .steps = 3,
                      .clip_norm = 0.5,
                      .poison =
                          [](Runtime& runtime, int64_t step, int32_t tensor,
                             std::span<float> gradient) {
                            if (step == 2 && tensor == 3 &&
                                runtime.coordinates().rank == 1)
                              gradient[7] =
                                  std::numeric_limits<float>::infinity();
                          }})
        .outcomes;
  };
  const auto gpu = outcomes("cuda"), cpu = outcomes("cpu");
  for (size_t step = 0; step < gpu.size(); ++step) {
    EXPECT_EQ(gpu[step].skipped, cpu[step].skipped);
    EXPECT_EQ(gpu[step].gradient_norm, cpu[step].gradient_norm);
    EXPECT_EQ(gpu[step].nonfinite_tensor, cpu[step].nonfinite_tensor);
    EXPECT_EQ(gpu[step].nonfinite_rank, cpu[step].nonfinite_rank);
  }
}

INSTANTIATE_TEST_SUITE_P(Runtime, EveryRuleOnGpu,
                         testing::Values("muon", "adamw", "shampoo", "soap"),
                         [](const auto& of) { return of.param; });

TEST(AdamwOnGpu, HasTheBitsOfTheCpu) {
  std::string why;
  if (!find_cuda_device(&why)) GTEST_SKIP() << why;
  const auto digest = [](const std::string& device) {
    const TrialResult result =
        run_trial({.plan = small_plan(toy_moe(), {.mesh = "dp=2,tp=2",
                                                  .rule = "adamw",
                                                  .device = device}),
                   .device = device,
                   .gradients = GradientKind::kRandom,
                   .clip_norm = 0.5});
    return result.parameters + result.states;
  };
  EXPECT_EQ(digest("cuda"), digest("cpu"));
}

}  // namespace
}  // namespace canzona::runtime::exactness_cuda_test
