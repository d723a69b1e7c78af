// Sizes of ZeRO and kinds of overlap, side by side.
#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/measure/test_bench.h"

namespace canzona::measure::step_zero_test {
namespace {

void expect_as_planned(const StepBench& bench) {
  for (const PlanBench& one : bench.plans) {
    SCOPED_TRACE(name_of(one.choice, 4));
    ASSERT_EQ(one.error, "");
    const std::vector<WireBytes>& planned = one.bytes_predicted.ranks;
    for (size_t r = 0; r < planned.size(); ++r) {
      EXPECT_EQ(one.trial.bytes_sent[r], planned[r].sent());
      EXPECT_EQ(one.trial.slow_bytes_sent[r], planned[r].sent_inter);
    }
    EXPECT_EQ(one.trial.memory_bytes_max, one.memory_predicted_max);
    EXPECT_LE(one.trial.pools.bytes, one.memory_predicted_max);
    EXPECT_GE(one.trial.iteration.median, 0.002);
    EXPECT_GE(one.predicted_iteration_seconds, 0.002);
  }
}

TEST(StepZero, AllChoicesDoAsPlannedAndLeadToOneResult) {
  for (const std::string rule : {"muon", "soap", "adamw"}) {
    SCOPED_TRACE(rule);
    const std::vector<StepChoice> choices = all_cuts("dp=4");
    const StepBench bench =
        run_step_bench(test_bench({.mesh = "dp=4", .rule = rule}, choices));
    EXPECT_EQ(bench.plans.size(), choices.size());
    expect_as_planned(bench);
    for (const PlanBench& one : bench.plans)
      EXPECT_EQ(one.trial.digest, bench.plans.front().trial.digest);
    EXPECT_EQ(bench.disagreement(GradientKind::kExact, DType::kFp32), "");
  }
}

// Micro-batches after the first add nothing, so that bits stay the same.
TEST(StepZero, MicroBatchesAndTensorParallelRanksCount) {
  std::string digest;
  for (const int64_t micro_batches : {1, 3}) {
    StepBenchRequest request =
        test_bench({.mesh = "dp=2,tp=2"},
                   {{"balanced"}, {"balanced", {2, 2, 2}}, {"layerwise"}});
    request.trial.micro_batches = micro_batches;
    const StepBench bench = run_step_bench(request);
    expect_as_planned(bench);
    for (const PlanBench& one : bench.plans) {
      if (digest.empty()) digest = one.trial.digest;
      EXPECT_EQ(one.trial.digest, digest);
    }
    const auto& zero1 = bench.plans[0].bytes_predicted;
    const auto& zero3 = bench.plans[1].bytes_predicted;
    EXPECT_GT(zero3.most_sent(), micro_batches * zero1.most_sent());
  }
}

// Every order of bf16 sums has its own bits, and half of the bytes; random
// gradients have those of the order alone.
TEST(StepZero, ResultsAgreeWhereSumsAreTheSame) {
  for (const char* mesh : {"dp=4", "dp=6", "dp=2,tp=2"}) {
    SCOPED_TRACE(mesh);
    for (const DType wire : {DType::kFp32, DType::kBf16}) {
      StepBenchRequest request = test_bench({.mesh = mesh}, all_cuts(mesh));
      std::erase_if(request.choices, [](const StepChoice& choice) {
        return choice.overlap != Overlap::kBackground;
      });
      request.trial.iterations = 0;
      request.trial.gradients = GradientKind::kRandom;
      request.trial.runtime.wire = wire;
      const StepBench bench = run_step_bench(request);
      EXPECT_EQ(bench.disagreement(GradientKind::kRandom, wire), "");
    }
  }
}

PlanBench bench_of(const char* mesh, const ZeroSizes& sizes,
                   const std::string& digest) {
  PlanBench one{.choice = {"balanced", sizes}, .error = {}};
  one.plan = bench_plan({.mesh = mesh, .rule = "adamw"}, one.choice);
  one.trial.digest = digest;
  return one;
}

TEST(StepZero, DisagreementsAreNamed) {
  StepBench bench;
  bench.plans = {bench_of("dp=4", {4, 1, 1}, "a"),
                 bench_of("dp=4", {4, 2, 2}, "a"),
                 bench_of("dp=4", {4, 1, 4}, "b")};
  EXPECT_EQ(bench.disagreement(GradientKind::kExact, DType::kFp32),
            "balanced, zero1, background and balanced, z1=4,z2=1,z3=4, "
            "background give different parameters or states");
  EXPECT_NE(bench.disagreement(GradientKind::kRandom, DType::kBf16), "");
  // Pairs of six ranks are subtrees of the sum; groups of three are not.
  bench.plans = {bench_of("dp=6", {6, 1, 1}, "a"),
                 bench_of("dp=6", {6, 3, 3}, "b")};
  EXPECT_EQ(bench.disagreement(GradientKind::kRandom, DType::kFp32), "");
  EXPECT_NE(bench.disagreement(GradientKind::kExact, DType::kFp32), "");
  EXPECT_EQ(bench.disagreement(GradientKind::kExact, DType::kBf16), "");
  bench.plans[1] = bench_of("dp=6", {6, 2, 2}, "b");
  EXPECT_NE(bench.disagreement(GradientKind::kRandom, DType::kFp32), "");
  bench.plans[1].error = "not run";
  EXPECT_EQ(bench.disagreement(GradientKind::kRandom, DType::kFp32), "");
}

TEST(StepZero, ScalesLinksByWhatWasMeasuredFirst) {
  StepBenchRequest request =
      test_bench({.mesh = "dp=2"}, {{"replicated", {2, 2, 2}},
                                    {"balanced", {2, 1, 1}},
                                    {"balanced", {2, 2, 2}}});
  request.link = LinkModel{.intra_bytes_per_second = 10,
                           .inter_bytes_per_second = 1,
                           .ranks_per_node = 2};
  request.comm_ratio = 0.5;
  const StepBench bench = run_step_bench(request);
  EXPECT_EQ(bench.measured_first, "balanced, zero3");
  EXPECT_NEAR(bench.link->intra_bytes_per_second,
              10 * bench.link->inter_bytes_per_second,
              1e-6 * bench.link->intra_bytes_per_second);
  const PlanBench& zero3 = bench.plans.back();
  // Compute is at least forward and backward; the step itself is short.
  EXPECT_GE(zero3.link_seconds, 0.5 * 0.002);
  EXPECT_TRUE(zero3.trial.knows_exposed);
  EXPECT_GT(zero3.trial.links.busy, 0);
}

TEST(StepZero, WhatCannotBeMeasuredFirstGivesWay) {
  StepBenchRequest request = test_bench(
      {.mesh = "dp=2"}, {{"balanced", {2, 1, 1}}, {"balanced", {2, 2, 2}}});
  request.compute_seconds.reset();
  const auto plan = request.plan;
  request.plan = [plan](const StepChoice& choice, const Link& link) {
    if (choice.sizes.z2 == 2) throw UsageError("not so");
    return plan(choice, link);
  };
  const StepBench bench = run_step_bench(request);
  EXPECT_EQ(bench.measured_first, "balanced, zero1");
  EXPECT_EQ(bench.plans.front().error, "");
  EXPECT_EQ(bench.plans.back().error, "not so");
  request.plan = [](const StepChoice&, const Link&) -> Plan {
    throw UsageError("not so");
  };
  EXPECT_THROW(run_step_bench(request), UsageError);
}

TEST(StepZero, SharesOfLinkTimesAreOfWhatWasBusy) {
  const LinkTimes links{.waited = 1, .busy = 4, .exposed = 0.5};
  EXPECT_EQ(links.hidden_fraction(), 0.75);
  EXPECT_EQ(links.covered_fraction(), 0.875);
  EXPECT_EQ(LinkTimes{}.hidden_fraction(), 1);
}

}  // namespace
}  // namespace canzona::measure::step_zero_test
