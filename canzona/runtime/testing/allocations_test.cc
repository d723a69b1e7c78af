// A step does not allocate: everything was reserved before.
#include <gtest/gtest.h>

#include <barrier>

#include "canzona/base/test_allocations.h"
#include "canzona/runtime/testing/test_block_plans.h"
#include "canzona/runtime/testing/test_team_plans.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime::runtime_allocations_test {
namespace {

// Runs on four ranks.
void expect_no_allocations(const Plan& plan) {
  Trial trial;
  trial.plan = plan;
  std::barrier together(4);
  run_ranks(4, [&](Communicator& world) {
    const auto engine = make_cpu_engine();
    Runtime runtime(trial.plan, world, *engine, {});
    set_initial_parameters(runtime);
    int64_t before = 0;
    for (int64_t step = 1; step <= 8; ++step) {
      make_gradients(runtime, *engine, trial, step);
      together.arrive_and_wait();
      // After a whole period every shape of scratch has been used.
      if (step == 5) before = num_allocations();
      together.arrive_and_wait();
      runtime.step({.learning_rate = 0.01, .clip_norm = 1});
      runtime.wait_all_params();
      together.arrive_and_wait();
      if (step == 5) {
        EXPECT_EQ(num_allocations(), before);
      }
      together.arrive_and_wait();
    }
  });
}

class EveryStrategyAndRule
    : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(EveryStrategyAndRule, AllocatesNothingInAStep) {
  const auto& [strategy, rule] = GetParam();
  for (const std::string mesh : {"dp=4", "dp=2,tp=2"}) {
    SCOPED_TRACE(mesh);
    expect_no_allocations(small_plan(toy_model(), {.mesh = mesh,
                                                   .strategy = strategy,
                                                   .rule = rule,
                                                   .options = quick(rule),
                                                   .split = "qkv"}));
  }
}

TEST(RuntimeAllocations, AreNoneWithTeams) {
  for (const int32_t size : {2, 4}) {
    SCOPED_TRACE(size);
    expect_no_allocations(
        team_plan("tp=4", strips(8), [&](size_t) { return size; }));
  }
}

TEST(RuntimeAllocations, AreNoneWithTeamsThatKeepStates) {
  for (const int32_t size : {1, 2, 4}) {
    SCOPED_TRACE(size);
    expect_no_allocations(
        soap_team_plan("tp=4", one_factor(4), [&](size_t) { return size; }));
  }
}

TEST(RuntimeAllocations, AreNoneWithHelpers) {
  for (const std::string rule : {"soap", "shampoo"}) {
    SCOPED_TRACE(rule);
    expect_no_allocations(helper_plan("tp=4", true, {}, "zero1", rule));
  }
}

TEST(RuntimeAllocations, AreNoneWithOwnersOfBlocks) {
  for (const std::string rule : {"shampoo", "soap"}) {
    SCOPED_TRACE(rule);
    expect_no_allocations(block_plan(block_wish(rule, "tp=4")));
  }
}

INSTANTIATE_TEST_SUITE_P(Runtime, EveryStrategyAndRule,
                         testing::Combine(testing::ValuesIn(strategy_names()),
                                          testing::Values("muon", "adamw",
                                                          "shampoo", "soap")),
                         [](const auto& of) {
                           return std::get<0>(of.param) + "_" +
                                  std::get<1>(of.param);
                         });

}  // namespace
}  // namespace canzona::runtime::runtime_allocations_test
