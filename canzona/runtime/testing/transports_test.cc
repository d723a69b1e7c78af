// Plans in which several ranks work on one matrix, by teams or by blocks with
// owners of their own, have one digest on thread ranks and on the ranks that
// this test is linked with: over sockets, or processes of MPI (tests/mpi).
#include <gmock/gmock.h>

#include <atomic>

#include "canzona/comm/test_ranks.h"
#include "canzona/runtime/testing/test_block_plans.h"
#include "canzona/runtime/testing/test_team_plans.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime::transports_test {
namespace {

// Several refreshes, which happen every third step.
constexpr int kSteps = 7;

Trial trial_of(const Plan& plan) {
  return {.plan = plan,
          .gradients = GradientKind::kRandom,
          .steps = kSteps,
          .clip_norm = 0.5};
}

// Steps of both plans end with the same bits, on threads and on
// `run_test_ranks`, where every rank looks.
void expect_one_digest(const Plan& whole, const Plan& shared) {
  ASSERT_TRUE(whole.parts[0].owners != shared.parts[0].owners);
  const TrialResult expected = run_trial(trial_of(whole));
  const TrialResult on_threads = run_trial(trial_of(shared));
  EXPECT_EQ(on_threads.parameters, expected.parameters);
  EXPECT_EQ(on_threads.states, expected.states);
  std::atomic<int> num_ranks = 0;
  Trial trial = trial_of(shared);
  trial.run_on = [](int ranks, const RankFunction& function) {
    run_test_ranks(ranks, function);
  };
  trial.at_end = [&](Runtime& runtime) {
    EXPECT_EQ(runtime.parameter_digest(), expected.parameters);
    EXPECT_EQ(runtime.state_digest(), expected.states);
    ++num_ranks;
  };
  run_trial(trial);
  EXPECT_GT(num_ranks, 0);
}

class SharedOver : public testing::TestWithParam<std::string> {};

TEST_P(SharedOver, TeamsHaveTheBitsOfWholeOwners) {
  const auto plan_of = [](bool is_shared) {
    return team_plan(GetParam(), strips(8), [&](size_t m) {
      return !is_shared ? 1 : m % 2 == 0 ? 4 : 2;
    });
  };
  expect_one_digest(plan_of(false), plan_of(true));
}

TEST_P(SharedOver, HelpersHaveTheBitsOfWholeOwners) {
  expect_one_digest(helper_plan(GetParam(), false),
                    helper_plan(GetParam(), true));
}

TEST_P(SharedOver, BlocksHaveTheBitsOfWholeOwners) {
  for (const std::string rule : {"shampoo", "soap"}) {
    SCOPED_TRACE(rule);
    const PlanWish wish = block_wish(rule, GetParam(), /*phases=*/3);
    expect_one_digest(small_plan(blocked_model(), wish), block_plan(wish));
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, SharedOver,
                         testing::Values("tp=4", "dp=2,tp=2"),
                         [](const auto& mesh) {
                           return mesh.param == "tp=4" ? "tp4" : "dp2_tp2";
                         });

}  // namespace
}  // namespace canzona::runtime::transports_test
