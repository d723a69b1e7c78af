// A rank that fails at any stage ends the others with an error that says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <semaphore>
#include <stdexcept>

#include "canzona/base/error.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime::runtime_faults_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

enum class Stage { kBeforeStep, kBetween, kForward };

struct Said {
  std::array<std::string, 4> by_rank;
};

// Runs steps on four ranks; `culprit` throws at a stage of the second step.
Said fail_at(Stage stage, const std::string& strategy, int culprit) {
  Said said;
  Trial trial;
  trial.plan =
      small_plan(toy_model(), {.mesh = "dp=2,tp=2", .strategy = strategy});
  const auto fail = [&](Communicator& world, Stage here, int64_t step) {
    if (here == stage && step == 2 && world.rank() == culprit)
      throw std::runtime_error("no more paper");
  };
  try {
    run_ranks(4, [&](Communicator& world) {
      try {
        const auto engine = make_cpu_engine();
        Runtime runtime(trial.plan, world, *engine, {});
        for (int64_t step = 1; step <= 3; ++step) {
          make_gradients(runtime, *engine, trial, step);
          fail(world, Stage::kBeforeStep, step);
          runtime.step({.learning_rate = 0.01});
          fail(world, Stage::kBetween, step);
          runtime.wait_params(0);
          fail(world, Stage::kForward, step);
          runtime.wait_all_params();
        }
      } catch (const PeerLost& error) {
        said.by_rank[static_cast<size_t>(world.rank())] = error.what();
        throw;
      }
    });
  } catch (const std::runtime_error& error) {
    said.by_rank[static_cast<size_t>(culprit)] = error.what();
  }
  return said;
}

class EveryStrategyFails : public testing::TestWithParam<std::string> {};

TEST_P(EveryStrategyFails, WithAnErrorOnEveryRank) {
  for (const Stage stage :
       {Stage::kBeforeStep, Stage::kBetween, Stage::kForward})
    for (const int culprit : {0, 3}) {
      SCOPED_TRACE(cat("stage ", static_cast<int>(stage), ", rank ", culprit));
      const Said said = fail_at(stage, GetParam(), culprit);
      for (int r = 0; r < 4; ++r) {
        const std::string& words = said.by_rank[static_cast<size_t>(r)];
        if (r == culprit)
          EXPECT_EQ(words, "no more paper");
        else
          EXPECT_THAT(words, HasSubstr(cat("rank ", culprit)));
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Runtime, EveryStrategyFails,
                         testing::ValuesIn(strategy_names()),
                         [](const auto& of) { return of.param; });

// A rank that never arrives: the others name it and the operation within the
// deadline.
TEST(Deadline, NamesTheRankTheOperationAndTheMicroGroup) {
  Trial trial;
  trial.plan = small_plan(toy_model(), {.mesh = "tp=2"});
  RunOptions options;
  options.communicator.deadline = std::chrono::milliseconds(200);
  std::string said;
  std::binary_semaphore given_up(0);
  try {
    run_ranks(2, options, [&](Communicator& world) {
      const auto engine = make_cpu_engine();
      Runtime runtime(trial.plan, world, *engine, {});
      make_gradients(runtime, *engine, trial, 1);
      if (world.rank() == 1) {
        given_up.acquire();
        return;
      }
      try {
        runtime.step({.learning_rate = 0.01});
      } catch (const PeerLost& error) {
        said = error.what();
        given_up.release();
        throw;
      }
    });
  } catch (const PeerLost&) {
  }
  EXPECT_THAT(said,
              AllOf(HasSubstr("rank 1"), HasSubstr("'largest gradient'")));
}

}  // namespace
}  // namespace canzona::runtime::runtime_faults_test
