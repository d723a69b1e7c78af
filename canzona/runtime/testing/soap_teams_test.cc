// SOAP with one factor in teams: the bits of whole owners, over refreshes, with
// states that go on with teams and without.
#include <gmock/gmock.h>

#include <set>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/team_schedule.h"
#include "canzona/runtime/testing/test_fault_trials.h"
#include "canzona/runtime/testing/test_shared_plans.h"
#include "canzona/runtime/testing/test_team_plans.h"

namespace canzona::runtime::soap_teams_test {
namespace {

Plan soap_plan(const std::string& mesh, const RuleOptions& options,
               int32_t size) {
  return soap_team_plan(mesh, options, [=](size_t) { return size; });
}

TEST(SoapTeams, GiveTheBitsOfWholeOwners) {
  for (const int strips : {2, 4, 8}) {
    std::set<Bits> seen;
    for (const std::string mesh : {"dp=1", "tp=2", "dp=2,tp=4", "tp=8"})
      for (const int32_t size : {1, 2, 4, 8}) {
        SCOPED_TRACE(cat(strips, " ", mesh, " ", size));
        seen.insert(bits_of({.plan = soap_plan(mesh, one_factor(strips), size),
                             .steps = 8,
                             .clip_norm = strips == 4 ? 0.5 : 0.0}));
        ASSERT_EQ(seen.size(), 1U);
      }
  }
}

TEST(SoapTeams, GiveThemWithEveryKindOfBasis) {
  for (const RuleOptions& more :
       std::vector<RuleOptions>{{{"preset", "nvidia"}, {"strips", "4"}},
                                {{"phases", "3"}, {"refresh", "eigh"}},
                                {{"start_step", "3"}, {"beta1", "0"}},
                                {{"kl", "on"}, {"momentum_basis", "original"}},
                                {{"precondition_frequency", "1"}}}) {
    std::set<Bits> seen;
    for (const int32_t size : {1, 2, 4})
      for (const bool pipelined : {true, false}) {
        SCOPED_TRACE(cat(more.begin()->first, " ", size, " ", pipelined));
        seen.insert(
            bits_of({.plan = soap_plan("tp=4", one_factor(4, more), size),
                     .steps = 8,
                     .options = {.pipelined = pipelined}}));
        ASSERT_EQ(seen.size(), 1U);
      }
  }
}

TEST(SoapTeams, OfAllSizesMayMix) {
  std::set<Bits> seen;
  const int32_t sizes[] = {1, 2, 4, 8, 4, 2, 1, 8};
  for (const size_t turn : {0, 1, 2, 3}) {
    SCOPED_TRACE(turn);
    const Plan plan = soap_team_plan("tp=8", one_factor(8), [&](size_t m) {
      return turn == 0 ? 1 : sizes[(m + turn) % std::size(sizes)];
    });
    seen.insert(bits_of(
        {.plan = plan, .gradients = GradientKind::kRandom, .steps = 20}));
    ASSERT_EQ(seen.size(), 1U);
  }
}

TEST(SoapTeams, OfPlacesGiveTheBitsOfWholeOwners) {
  for (const auto& [mesh, zero] :
       {std::pair{"dp=4", "hier:4"}, {"dp=4,tp=2", "hier:2"}}) {
    std::set<Bits> seen;
    for (const int32_t size : {1, 2, 4}) {
      SCOPED_TRACE(cat(mesh, " ", zero, " ", size));
      seen.insert(
          bits_of({.plan = soap_team_plan(
                       mesh, one_factor(8), [&](size_t) { return size; }, zero),
                   .steps = 5}));
      ASSERT_EQ(seen.size(), 1U);
    }
  }
}

TEST(SoapTeams, OfAPlanOfOnesOwnAreReadBackAndRun) {
  expect_own_plans_run(shared_model(), "soap", one_factor(8),
                       [](const Plan& plan) { return has_teams(plan); });
}

// Steps without a refresh exchange sums alone.
TEST(SoapTeams, SendAndReserveWhatThePlanSays) {
  for (const std::string mesh : {"tp=8", "dp=2,tp=4"}) {
    SCOPED_TRACE(mesh);
    const Plan plan = soap_plan(mesh, one_factor(8), 4);
    const std::vector<RankCost> predicted = predict(plan);
    // Steps 1 and 4 refresh, 2 and 3 do not.
    const TrialResult few = run_trial({.plan = plan, .steps = 1});
    const TrialResult more = run_trial({.plan = plan, .steps = 3});
    int64_t in_teams = 0, at_refreshes = 0;
    for (size_t r = 0; r < predicted.size(); ++r) {
      SCOPED_TRACE(r);
      const auto sent = [&](Collective collective) {
        return predicted[r].wire[static_cast<size_t>(collective)].sent();
      };
      const int64_t teams =
          sent(Collective::kTeamSums) + sent(Collective::kTeamFactors);
      EXPECT_EQ(more.sent[r].teams - few.sent[r].teams, 2 * teams);
      EXPECT_EQ(more.sent[r].gather, 3 * sent(Collective::kGather));
      EXPECT_EQ(more.sent[r].scatter, 3 * sent(Collective::kScatter));
      EXPECT_EQ(more.memory[r].buffers, predicted[r].memory.buffers);
      EXPECT_EQ(more.memory[r].states, predicted[r].memory.states);
      in_teams += teams;
      at_refreshes += few.sent[r].teams - teams;
    }
    EXPECT_GT(in_teams, 0);
    EXPECT_GT(at_refreshes, 0);
  }
}

TEST(SoapTeams, GoOnFromWholeOwnersAndTheReverse) {
  const Plan whole = soap_plan("dp=2,tp=2", one_factor(8), 1);
  const Plan shared = soap_plan("tp=4", one_factor(8), 4);
  const Plan pairs = soap_plan("dp=2,tp=4", one_factor(8), 2);
  expect_states_go_on(whole, {{&whole, &shared},
                              {&shared, &whole},
                              {&shared, &pairs},
                              {&pairs, &shared}});
}

// Also where the step would have been a refresh.
TEST(SoapTeams, SkipAStepWithANonfiniteStripOnAllRanks) {
  std::vector<Plan> plans;
  for (const int32_t size : {1, 2, 4})
    plans.push_back(soap_plan("tp=4", one_factor(4), size));
  expect_steps_skipped_alike(plans);
}

TEST(SoapTeams, EndTogetherWhenARankFails) {
  expect_ranks_end_together(
      soap_team_plan("tp=4", one_factor(8),
                     [](size_t m) { return m % 2 == 0 ? 4 : 2; }),
      6);
}

}  // namespace
}  // namespace canzona::runtime::soap_teams_test
