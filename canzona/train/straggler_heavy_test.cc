// Measures a rank that is late: this takes seconds, and its bound is a time.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "canzona/trace/run_summary.h"
#include "canzona/train/test_training.h"

namespace canzona::train::straggler_heavy_test {
namespace {

TEST(StragglerHeavy, R9ARankThatSleepsIsNamedWithinATenth) {
  constexpr std::chrono::milliseconds kSleep(200);
  for (const char* mesh : {"dp=4", "dp=2,tp=2", "dp=2"}) {
    TestRun run{.mesh = mesh, .steps = 10, .eval_sequences = 0};
    run.before_step = [&](int64_t, int rank, Runtime&) {
      if (rank == 1) std::this_thread::sleep_for(kSleep);
    };
    const TrainResult result = run_test(run).result;
    RunSummary summary;
    summary.steps = result.steps;
    for (const RankTimes& times : result.times)
      summary.per_rank.push_back(
          {.rank = static_cast<int32_t>(summary.per_rank.size()),
           .forward_backward_seconds = times.forward_backward,
           .optimizer_seconds = times.optimizer,
           .waited_seconds = times.waited});
    find_late_ranks(summary);
    EXPECT_EQ(summary.late_rank, 1) << mesh;
    EXPECT_NEAR(summary.late_seconds_per_step, 0.2, 0.02) << mesh;
  }
}

}  // namespace
}  // namespace canzona::train::straggler_heavy_test
