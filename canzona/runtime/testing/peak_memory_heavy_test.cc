// Compares the memory that the process really uses with what the plan says.
// Runs in its own process, so that no other test's memory is counted.
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <mutex>

#include "canzona/base/text.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/testing/test_support.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime::peak_memory_heavy_test {
namespace {

// A line of /proc/self/status, in bytes.
double status_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word) {
    double kilobytes = 0;
    if (word == name + ":" && file >> kilobytes) return kilobytes * 1024;
  }
  return -1;
}

// Resets the peak.
void forget_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

// 46 million elements in small tensors, so that the memory of the test itself
// is negligible.
Model many_tensors() {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 16; ++i)
    tensors.push_back(matrix_tensor(cat("m", i), 512, 2048, Cut::kRows));
  for (int i = 0; i < 30; ++i)
    tensors.push_back(adamw_tensor(cat("n", i), 1 << 20));
  return model_of(std::move(tensors));
}

// Runs two steps; returns the bytes that the engines reserved for themselves.
double run_steps(const Trial& trial) {
  std::mutex mutex;
  double scratch = 0;
  run_ranks(trial.plan.mesh.world(), [&](Communicator& world) {
    const auto engine = make_engine("cpu");
    Runtime runtime(trial.plan, world, *engine, {});
    set_initial_parameters(runtime);
    for (int64_t step = 1; step <= 2; ++step) {
      make_gradients(runtime, *engine, trial, step);
      runtime.step({.learning_rate = 0.01});
      runtime.wait_all_params();
    }
    const std::lock_guard lock(mutex);
    scratch += static_cast<double>(engine->arena().reserved());
  });
  return scratch;
}

class PeakMemory : public testing::TestWithParam<std::string> {};

TEST_P(PeakMemory, IsThatOfThePlanAndTheScratch) {
  Trial trial;
  trial.plan = small_plan(many_tensors(), {.mesh = GetParam(),
                                           .bucket_elements = 4'000'000,
                                           .capacity_bytes = 8 << 20});
  double predicted = 0;
  for (const RankCost& rank : predict(trial.plan))
    predicted += static_cast<double>(rank.memory.total().value());
  ASSERT_GT(predicted, 500e6);
  const double before = status_bytes("VmRSS");
  forget_peak();
  ASSERT_LT(status_bytes("VmHWM"), before + 1e6) << "the peak is not forgotten";
  const double scratch = run_steps(trial);
  const double grown = status_bytes("VmHWM") - before;
  std::cout << GetParam() << ": predicted " << predicted / 1e6
            << " MB, scratch of the rule " << scratch / 1e6 << " MB, grown "
            << grown / 1e6 << " MB: " << grown / (predicted + scratch) << "\n";
  EXPECT_NEAR(grown / (predicted + scratch), 1, 0.05);
}

INSTANTIATE_TEST_SUITE_P(Runtime, PeakMemory,
                         testing::Values("dp=1", "dp=2", "dp=2,tp=2"));

}  // namespace
}  // namespace canzona::runtime::peak_memory_heavy_test
