#include "canzona/measure/step_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/measure/test_bench.h"

namespace canzona::measure::step_bench_test {
namespace {

using testing::SizeIs;

StepBenchRequest small(const std::string& mesh,
                       const std::vector<std::string>& strategies) {
  std::vector<StepChoice> choices;
  for (const std::string& strategy : strategies) choices.push_back({strategy});
  return test_bench({.mesh = mesh}, std::move(choices));
}

TEST(StepBench, StrategiesGiveOneResultAndWhatWasPredicted) {
  const StepBench bench = run_step_bench(small("dp=2,tp=2", strategy_names()));
  ASSERT_THAT(bench.plans, SizeIs(strategy_names().size()));
  ASSERT_TRUE(bench.speed.has_value());
  for (const PlanBench& s : bench.plans) {
    SCOPED_TRACE(s.choice.strategy);
    EXPECT_EQ(s.error, "");
    // Predictions use the measured rate; the plan does not know it.
    EXPECT_EQ(s.plan->cost_basis.source, "nominal");
    EXPECT_GT(s.predicted_mean(), 0);
    EXPECT_GE(s.predicted_worst(), s.predicted_mean());
    EXPECT_EQ(s.trial.digest, bench.plans[0].trial.digest);
    EXPECT_EQ(s.trial.state_digest, bench.plans[0].trial.state_digest);
    EXPECT_EQ(s.trial.memory_bytes_max, s.memory_predicted_max);
    EXPECT_EQ(s.trial.bytes_sent_max, s.bytes_predicted.most_sent());
    EXPECT_GT(s.trial.step.median, 0);
    EXPECT_GT(s.trial.host_seconds, 0);
    EXPECT_GE(s.trial.step_and_gather.median, s.trial.step.median);
    EXPECT_GE(s.trial.iteration.median, 0.002);
    EXPECT_THAT(s.trial.rank_seconds, SizeIs(4));
    EXPECT_GT(s.speedup_over_replicated, 0);
  }
  EXPECT_EQ(bench.measured_first, "");
}

std::vector<std::string> names_of(const std::vector<Phase>& phases) {
  std::vector<std::string> names;
  for (const Phase& phase : phases) names.push_back(phase.name);
  return names;
}

// Also if a strategy is measured first, whose digests are not needed.
TEST(StepBench, TellsWhatPassesUntilTheFirstStep) {
  for (const bool first : {false, true}) {
    StepBenchRequest request = small("dp=2", {"replicated", "balanced"});
    if (first) request.compute_seconds = {};
    Phases phases(request.progress);
    phases.begin("device");
    request.phases = &phases;
    const StepBench bench = run_step_bench(request);
    EXPECT_THAT(names_of(bench.beginning),
                testing::ElementsAre("device", "plan", "memory and groups",
                                     "parameters", "gradients", "first step"));
    EXPECT_GT(total_seconds(bench.beginning), 0);
    for (const PlanBench& s : bench.plans) {
      EXPECT_NE(s.trial.digest, "");
      EXPECT_GT(s.trial.digest_seconds, 0);
    }
  }
}

TEST(StepBench, HalfOfTheGradientBytesTravelInBf16) {
  StepBenchRequest request =
      small("dp=4", {"balanced", "layerwise", "replicated"});
  request.trial.runtime.wire = DType::kBf16;
  for (const PlanBench& s : run_step_bench(request).plans) {
    SCOPED_TRACE(s.choice.strategy);
    EXPECT_EQ(s.trial.bytes_sent_max, s.bytes_predicted.most_sent());
    EXPECT_LT(s.bytes_predicted.most_sent(), s.predicted[0].bytes_sent());
  }
}

TEST(StepBench, LinksAreScaledToAPartOfCompute) {
  StepBenchRequest request = small("dp=2", {"balanced"});
  request.compute_seconds = 0.02;
  request.comm_ratio = 0.5;
  const StepBench bench = run_step_bench(request);
  EXPECT_EQ(bench.measured_first, "balanced");
  ASSERT_TRUE(bench.link);
  EXPECT_EQ(bench.link->intra_bytes_per_second,
            bench.link->inter_bytes_per_second);
  const double sending =
      static_cast<double>(bench.plans[0].bytes_predicted.most_sent()) /
      bench.link->intra_bytes_per_second;
  // Compute is at least forward and backward; the step itself is short.
  EXPECT_GE(sending, 0.5 * 0.02);
  EXPECT_LT(sending, 0.5 * 0.2);
  EXPECT_GT(bench.copy_bytes_per_second, 0);
  EXPECT_FALSE(is_too_fast(bench.link, bench.copy_bytes_per_second));
}

TEST(StepBench, WithoutTrafficThereIsNoRatioOfIt) {
  StepBenchRequest request = small("dp=1", {"balanced"});
  request.comm_ratio = 0.5;
  EXPECT_THROW(run_step_bench(request), UsageError);
}

TEST(StepBench, AStrategyThatCannotPlanIsPartOfTheAnswer) {
  StepBenchRequest request = small("dp=2", {"balanced", "impossible"});
  const auto plan = request.plan;
  request.plan = [plan](const StepChoice& choice, const Link& link) {
    if (choice.strategy == "impossible") throw UsageError("no");
    return plan(choice, link);
  };
  const StepBench bench = run_step_bench(request);
  EXPECT_EQ(bench.plans[0].error, "");
  EXPECT_EQ(bench.plans[1].error, "no");
}

TEST(StepBench, ForwardAndBackwardTakeTwoStepsIfNobodySays) {
  StepBenchRequest request = small("dp=2", {"replicated"});
  request.compute_seconds.reset();
  const StepBench bench = run_step_bench(request);
  EXPECT_EQ(bench.measured_first, "replicated");
  EXPECT_GT(bench.compute_seconds, 0);
}

TEST(StepBench, SaysWhenALinkIsFasterThanCopies) {
  StepBench bench;
  bench.copy_bytes_per_second = 8e9;
  EXPECT_FALSE(is_too_fast(bench.link, bench.copy_bytes_per_second));
  bench.link =
      LinkModel{.intra_bytes_per_second = 2e9, .inter_bytes_per_second = 1e9};
  EXPECT_FALSE(is_too_fast(bench.link, bench.copy_bytes_per_second));
  bench.link->inter_bytes_per_second = 2.1e9;
  EXPECT_TRUE(is_too_fast(bench.link, bench.copy_bytes_per_second));
}

TEST(StepBench, WhatDoesNotFitIntoAGpuIsRefusedWithAllNumbers) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  EXPECT_NO_THROW(require_gpu_memory("balanced", 2, 3 * kGiB, kGiB, 8 * kGiB));
  try {
    require_gpu_memory("balanced", 2, 3 * kGiB, kGiB, 8 * kGiB - 1);
    ADD_FAILURE() << "nothing thrown";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("strategy balanced"),
                               testing::HasSubstr("2 ranks"),
                               testing::HasSubstr("by the plan"),
                               testing::HasSubstr("for NCCL"),
                               testing::HasSubstr("are free")));
  }
}

}  // namespace
}  // namespace canzona::measure::step_bench_test
