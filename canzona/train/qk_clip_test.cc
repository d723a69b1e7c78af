// QK-clip while a decoder is trained.
#include "canzona/train/qk_clip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/train/test_training.h"

namespace canzona::train::train_qk_clip_test {
namespace {

// Logits of a model as it is initialized are far below 1: so is tau.
constexpr double kTau = 0.25;

TestRun clipped(double tau, bool queries_alone = false) {
  TestRun run;
  run.adjust = [=](TrainSettings& settings) {
    settings.decoder.architecture.qk_norm = false;
    settings.decoder.architecture.kv_heads = 2;
    settings.decoder.notes_logits = true;
    settings.qk_clip = {.tau = tau, .queries_alone = queries_alone};
  };
  return run;
}

// Weights change by clipping alone, and every step has the same sequences. Only
// the first layer's inputs stay the same then.
TestRun still(double tau, bool queries_alone = false, int32_t layers = 4) {
  TestRun run = clipped(tau, queries_alone);
  run.steps = 3;
  run.num_tokens = 265;  // 20 sequences and one that is held out
  run.global_batch = 20;
  run.adamw_rate = 0;
  run.adjust = [=, adjust = run.adjust](TrainSettings& settings) {
    adjust(settings);
    settings.decoder.architecture.layers = layers;
    settings.learning_rate = [](int64_t) { return 0.0; };
  };
  return run;
}

TEST(TrainQkClip, LogitsAreAtMostTauAfterwards) {
  for (const bool queries_alone : {false, true})
    for (const char* mesh : {"dp=1", "dp=2,tp=2"}) {
      TestRun run = still(1e6, queries_alone, 1);
      run.mesh = mesh;
      const std::vector<StepMetrics> before = run_test(run).steps;
      ASSERT_GT(*before[0].largest_logit, 1.1 * kTau);
      ASSERT_EQ(*before[1].largest_logit, *before[0].largest_logit);
      EXPECT_EQ(*before[0].clipped_heads, 0);
      run = still(kTau, queries_alone, 1);
      run.mesh = mesh;
      const std::vector<StepMetrics> steps = run_test(run).steps;
      EXPECT_EQ(*steps[0].largest_logit, *before[0].largest_logit);
      EXPECT_GT(*steps[0].clipped_heads, 0);
      EXPECT_LE(*steps[1].largest_logit, kTau * (1 + 1e-6));
      EXPECT_GT(*steps[1].largest_logit, kTau * (1 - 1e-3));
    }
}

TEST(TrainQkClip, NothingChangesWhereNoHeadExceedsTau) {
  TestRun without = clipped(1);
  without.adjust = [adjust = without.adjust](TrainSettings& settings) {
    adjust(settings);
    settings.qk_clip.reset();
  };
  const TestOutcome plain = run_test(without);
  EXPECT_FALSE(plain.steps[0].largest_logit);
  EXPECT_EQ(run_test(clipped(1e6)).result.digest, plain.result.digest);
  EXPECT_NE(run_test(clipped(kTau)).result.digest, plain.result.digest);
}

// No way to store or send weights changes a bit, nor do micro-batches in
// flight or recomputation change the maxima.
TEST(TrainQkClip, PlansDoNotChangeABit) {
  for (const auto& [mesh, split] : {std::pair("dp=2", "none"),
                                    {"dp=2,tp=2", "head"},
                                    {"dp=2,pp=2", "qkv"}}) {
    TestRun run = clipped(kTau);
    run.mesh = mesh;
    run.split = split;
    const TestOutcome right = run_test(run);
    int64_t heads = 0;
    for (const StepMetrics& step : right.steps) heads += *step.clipped_heads;
    EXPECT_GT(heads, 0);
    const auto same = [&](const TestRun& other) {
      const TestOutcome outcome = run_test(other);
      EXPECT_EQ(outcome.result.digest, right.result.digest) << mesh;
      EXPECT_EQ(outcome.result.state_digest, right.result.state_digest);
    };
    for (const char* zero : {"z1=1,z2=1,z3=1", "z3=2"}) {
      TestRun other = run;
      other.zero = zero;
      same(other);
    }
    TestRun other = run;
    other.recompute = Recompute::kLayer;
    same(other);
    other = run;
    other.overlap = Overlap::kNone;
    same(other);
  }
}

TEST(TrainQkClip, EveryMeshClipsTheSameHeads) {
  std::vector<std::vector<int64_t>> heads;
  std::vector<double> largest;
  for (const char* mesh : {"dp=1", "dp=2", "tp=2", "pp=2", "dp=2,tp=2,pp=2"}) {
    TestRun run = still(kTau);
    run.steps = 1;
    run.mesh = mesh;
    heads.emplace_back();
    const TestOutcome outcome = run_test(run);
    for (const StepMetrics& step : outcome.steps)
      heads.back().push_back(*step.clipped_heads);
    largest.push_back(*outcome.steps[0].largest_logit);
    EXPECT_EQ(heads.back(), heads.front()) << mesh;
    EXPECT_NEAR(largest.back(), largest.front(), 1e-6 * largest.front());
  }
}

TEST(TrainQkClip, FrozenProjectionsAreNotClipped) {
  const TestRun run = still(kTau);
  const TrainSettings settings = test_settings(run);
  Plan plan = test_plan(run, settings);
  freeze(plan.model, {"*layers.0.*qkv*"});
  run_ranks(1, {}, [&](Communicator& world) {
    RunQkClip clip({.tau = 1}, settings.decoder, plan,
                   coordinates_of(plan.mesh, 0), world);
    const std::vector<float> largest(4 * 4, 2.0F);
    const QkClipped found = clip.look(largest);
    EXPECT_EQ(found.rows.size(), 3U);
    EXPECT_EQ(found.heads, 12);
    EXPECT_EQ(found.largest, 2);
    EXPECT_EQ(found.fault, "");
  });
}

TEST(TrainQkClip, NamesLayerAndHeadOfAMaximumThatIsNotFinite) {
  const TestRun run = still(kTau);
  const TrainSettings settings = test_settings(run);
  const Plan plan = test_plan(run, settings);
  run_ranks(1, {}, [&](Communicator& world) {
    RunQkClip clip({.tau = 1}, settings.decoder, plan,
                   coordinates_of(plan.mesh, 0), world);
    for (const float bad : {-std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> largest(4 * 4, 2.0F);
      largest[4 * 2 + 3] = bad;
      const QkClipped found = clip.look(largest);
      EXPECT_THAT(found.fault,
                  testing::HasSubstr("layer 2: the largest logit of head 3"));
    }
  });
}

}  // namespace
}  // namespace canzona::train::train_qk_clip_test
