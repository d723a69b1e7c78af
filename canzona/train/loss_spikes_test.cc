// A loss that stands out is reported, ends the run if requested, and is found
// by a resumed run as by one that was not interrupted.
#include "canzona/train/run_checks.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "canzona/base/test_folder.h"
#include "canzona/train/test_training.h"

namespace canzona::train::loss_spikes_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(LossSpikes, D8AreMoreThanTheFactorTimesTheMedian) {
  const std::vector<double> recent = {3, 1, 4, 2};  // the lower of 2 and 3
  EXPECT_EQ(spike_over(recent, 20, 10), std::nullopt);
  EXPECT_EQ(spike_over(recent, 20.001, 10), 2.0);
  EXPECT_EQ(spike_over(recent, kInf, 10), 2.0);
  EXPECT_EQ(spike_over(recent, std::nan(""), 10), std::nullopt);
  EXPECT_EQ(spike_over(recent, 3.1, 1.5), 2.0);
  EXPECT_EQ(spike_over({3, 1, 4, 2, 2.5}, 30, 10), 2.5);
}

TEST(LossSpikes, D8AreNotToldWithoutLossesOrFactor) {
  EXPECT_EQ(spike_over({}, kInf, 10), std::nullopt);
  EXPECT_EQ(spike_over({1, 1, 1}, 100, 10), std::nullopt);
  EXPECT_EQ(spike_over({1, 1, 1, 1}, 100, 0), std::nullopt);
  EXPECT_EQ(spike_over({0, 0, 0, 0}, 1e-9, 10), std::nullopt);
}

TEST(LossSpikes, D8TheLastSixteenFiniteLossesAreKept) {
  std::vector<double> recent;
  for (int i = 0; i < 40; ++i) {
    remember_loss(i, recent);
    remember_loss(i % 2 == 0 ? kInf : std::nan(""), recent);
  }
  std::vector<double> expected;
  for (int i = 24; i < 40; ++i) expected.push_back(i);
  EXPECT_EQ(recent, expected);
}

// Counts that the right number is below the median.
TEST(LossSpikes, D8TheMedianIsTheMiddleOfRandomLosses) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> number(1, 9);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<double> recent(static_cast<size_t>(4 + trial % 13));
    for (double& loss : recent) loss = number(random);
    const double median = spike_over(recent, 1000, 2).value();
    const auto below = std::ranges::count_if(
        recent, [&](double loss) { return loss < median; });
    const auto up_to = std::ranges::count_if(
        recent, [&](double loss) { return loss <= median; });
    const std::ptrdiff_t middle = (std::ssize(recent) - 1) / 2;
    EXPECT_LE(below, middle);
    EXPECT_GT(up_to, middle);
  }
}

constexpr int64_t kJolt = 9;

int32_t head_of(const TestRun& run) {
  const Plan plan = test_plan(run, test_settings(run));
  for (int32_t t = 0; t < std::ssize(plan.model.tensors); ++t)
    if (plan.model.tensors[static_cast<size_t>(t)].role == Role::kHead)
      return t;
  ADD_FAILURE() << "no head";
  return 0;
}

// Makes the head 1024 times as large in one step.
TestRun jolted(TestRun run) {
  run.before_step = [head = head_of(run)](int64_t step, int, Runtime& runtime) {
    if (step != kJolt && step != kJolt + 1) return;
    runtime.wait_all_params();
    std::vector<float> shard(static_cast<size_t>(runtime.shard_elements(head)));
    runtime.get_parameter(head, shard);
    for (float& weight : shard) weight *= step == kJolt ? 1024.F : 1 / 1024.F;
    runtime.set_parameter(head, shard);
  };
  return run;
}

TestRun plain_run() {
  return {.mesh = "dp=2,tp=2",
          .steps = 14,
          .eval_sequences = 0,
          .spike_factor = 10};
}

TEST(LossSpikes, D8AStepThatStandsOutIsTold) {
  const TestOutcome run = run_test(jolted(plain_run()));
  ASSERT_EQ(run.steps.size(), 14U);
  std::vector<double> before;
  for (const StepMetrics& step : run.steps) {
    EXPECT_EQ(step.spike_over.has_value(), step.step == kJolt) << step.step;
    if (step.step < kJolt) before.push_back(step.loss);
  }
  std::ranges::sort(before);
  const StepMetrics& spike = run.steps[kJolt - 1];
  EXPECT_EQ(spike.spike_over, before[3]);  // of eight
  EXPECT_EQ(run.result.spikes.count, 1);
  EXPECT_EQ(run.result.spikes.step, kJolt);
  EXPECT_EQ(run.result.spikes.loss, spike.loss);
  EXPECT_EQ(run.result.spikes.over, spike.spike_over);
  EXPECT_FALSE(run.result.diverged);
  TestRun off = jolted(plain_run());
  off.spike_factor = 0;
  const TestOutcome silent = run_test(off);
  EXPECT_EQ(silent.result.spikes.count, 0);
  EXPECT_EQ(silent.result.digest, run.result.digest);
}

TEST(LossSpikes, D8EndsARunThatIsToStop) {
  const TestFolder folder;
  TestRun run = jolted(plain_run());
  run.spike_stop = true;
  run.saving = {.every = 4,
                .store = {.folder = folder.path("ckpt"), .owner = "a test"}};
  const TestOutcome ended = run_test(run);
  EXPECT_TRUE(ended.result.diverged);
  EXPECT_EQ(ended.result.steps, kJolt);
  EXPECT_EQ(ended.result.spikes.step, kJolt);
  EXPECT_EQ(ended.result.saved_step, 8);
}

// Only one of the eight losses before the jolt comes after the checkpoint.
TEST(LossSpikes, D8ARunThatGoesOnDecidesTheSame) {
  const TestFolder folder;
  TestRun run = jolted(plain_run());
  run.saving = {.every = 7,
                .store = {.folder = folder.path("ckpt"), .owner = "a test"}};
  const TestOutcome straight = run_test(run);
  run.saving = {};
  for (const char* step : {"7", "14"}) {
    run.resume = LoadRequest{.folder = folder.path("ckpt"), .which = step};
    const TestOutcome more = run_test(run);
    EXPECT_EQ(more.result.spikes.count, 1) << step;
    EXPECT_EQ(more.result.spikes.step, kJolt) << step;
    EXPECT_EQ(more.result.spikes.loss, straight.result.spikes.loss) << step;
    EXPECT_EQ(more.result.spikes.over, straight.result.spikes.over) << step;
    EXPECT_EQ(more.result.digest, straight.result.digest) << step;
  }
}

}  // namespace
}  // namespace canzona::train::loss_spikes_test
