// Matrices with two factors, one of which a helper decomposes in refreshes: the
// bits of whole owners, with states that go on with helpers and without.
#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/team_schedule.h"
#include "canzona/runtime/testing/test_fault_trials.h"
#include "canzona/runtime/testing/test_helper_faults.h"
#include "canzona/runtime/testing/test_shared_plans.h"
#include "canzona/runtime/testing/test_team_plans.h"

namespace canzona::runtime::helpers_test {
namespace {

TEST(Helpers, GiveTheBitsOfWholeOwners) {
  std::set<Bits> seen;
  for (const std::string mesh : {"dp=1", "tp=2", "tp=4", "dp=2,tp=2"})
    for (const bool helped : {false, true})
      for (const bool pipelined : {true, false}) {
        SCOPED_TRACE(cat(mesh, " ", helped, " ", pipelined));
        const Plan plan = helper_plan(mesh, helped);
        EXPECT_EQ(has_teams(plan), helped && mesh != "dp=1");
        seen.insert(bits_of(
            {.plan = plan, .steps = 8, .options = {.pipelined = pipelined}}));
        ASSERT_EQ(seen.size(), 1U);
      }
}

TEST(Helpers, GiveThemWithEveryKindOfBasis) {
  for (const RuleOptions& more : std::vector<RuleOptions>{
           {{"preset", "nvidia"}},
           {{"phases", "3"}, {"refresh", "eigh"}},
           {{"start_step", "3"}, {"beta1", "0"}},
           {{"kl", "on"}, {"momentum_basis", "original"}},
           {{"grafting", "adam"}, {"momentum_basis", "original"}},
           {{"precondition_frequency", "1"}}}) {
    std::set<Bits> seen;
    for (const bool helped : {false, true}) {
      SCOPED_TRACE(cat(more.begin()->first, " ", helped));
      seen.insert(bits_of({.plan = helper_plan("tp=4", helped, more),
                           .gradients = GradientKind::kRandom,
                           .steps = 8,
                           .clip_norm = 0.5}));
      ASSERT_EQ(seen.size(), 1U);
    }
  }
}

TEST(Helpers, GiveTheBitsOfWholeOwnersWithShampoo) {
  for (const RuleOptions& more :
       std::vector<RuleOptions>{{},
                                {{"phases", "3"}, {"root", "newton"}},
                                {{"precondition_frequency", "1"}},
                                {{"classic_momentum", "0.9"}}}) {
    std::set<Bits> seen;
    for (const std::string mesh : {"tp=2", "dp=2,tp=4"})
      for (const bool helped : {false, true}) {
        SCOPED_TRACE(cat(mesh, " ", helped, " ", more.size()));
        const Plan plan = helper_plan(mesh, helped, more, "zero1", "shampoo");
        EXPECT_EQ(has_teams(plan), helped);
        seen.insert(bits_of({.plan = plan, .steps = 8}));
        ASSERT_EQ(seen.size(), 1U);
      }
  }
  const auto plan_of = [](const char* mesh, bool helped) {
    return helper_plan(mesh, helped, {}, "zero1", "shampoo");
  };
  const Plan whole = plan_of("dp=2,tp=2", false),
             helped = plan_of("tp=4", true);
  expect_states_go_on(whole, {{&whole, &helped}, {&helped, &whole}});
}

TEST(Helpers, OfPlacesGiveTheBitsOfWholeOwners) {
  for (const auto& [mesh, zero] :
       {std::pair{"dp=4", "hier:4"}, {"dp=4,tp=2", "hier:2"}}) {
    std::set<Bits> seen;
    for (const bool helped : {false, true}) {
      SCOPED_TRACE(cat(mesh, " ", zero, " ", helped));
      seen.insert(
          bits_of({.plan = helper_plan(mesh, helped, {}, zero), .steps = 5}));
      ASSERT_EQ(seen.size(), 1U);
    }
  }
}

TEST(Helpers, OfAPlanOfOnesOwnAreReadBackAndRun) {
  const Model model = model_of({matrix_tensor("a", 32, 32, Cut::kRows),
                                matrix_tensor("b", 32, 24, Cut::kColumns)});
  for (const std::string rule : {"soap", "shampoo"})
    expect_own_plans_run(model, rule, quick(rule),
                         [](const Plan& plan) { return has_teams(plan); });
}

// Every step has a refresh.
Plan always_helped() {
  return helper_plan("tp=4", true, {{"precondition_frequency", "1"}});
}

// Bytes that all teams of a plan exchange in a refresh, by rank.
std::vector<int64_t> bytes_at_refresh(const Plan& plan) {
  const PlanPart& part = plan.parts[0];
  TeamTable teams(part);
  std::vector<int64_t> out(static_cast<size_t>(part.grid.tp), 0);
  for (size_t m = 0; m < part.owners.size(); ++m)
    for (int32_t i = 0; teams.is_team(m) && i < 2; ++i) {
      const TeamBytes bytes = team_bytes(teams.strips(m), 2, i);
      out[static_cast<size_t>(part.owners[m][static_cast<size_t>(i)])] +=
          bytes.sums_sent + bytes.factors_sent;
    }
  return out;
}

// Steps without a refresh exchange nothing.
TEST(Helpers, SendAndReserveWhatThePlanSays) {
  const Plan plan = helper_plan("tp=4", true);
  const std::vector<RankCost> predicted = predict(plan);
  const std::vector<int64_t> at_refresh = bytes_at_refresh(plan);
  // Steps 1 and 4 refresh, 2 and 3 do not.
  const TrialResult one = run_trial({.plan = plan, .steps = 1});
  const TrialResult three = run_trial({.plan = plan, .steps = 3});
  const TrialResult four = run_trial({.plan = plan, .steps = 4});
  int64_t sum = 0;
  for (size_t r = 0; r < predicted.size(); ++r) {
    SCOPED_TRACE(r);
    const auto sent = [&](Collective collective) {
      return predicted[r].wire[static_cast<size_t>(collective)].sent();
    };
    EXPECT_EQ(sent(Collective::kTeamSums), 0);
    EXPECT_EQ(sent(Collective::kTeamFactors), 0);
    EXPECT_EQ(one.sent[r].teams, at_refresh[r]);
    EXPECT_EQ(three.sent[r].teams, at_refresh[r]);
    EXPECT_EQ(four.sent[r].teams, 2 * at_refresh[r]);
    EXPECT_EQ(four.sent[r].gather, 4 * sent(Collective::kGather));
    EXPECT_EQ(four.sent[r].scatter, 4 * sent(Collective::kScatter));
    EXPECT_EQ(four.memory[r].buffers, predicted[r].memory.buffers);
    EXPECT_EQ(four.memory[r].states, predicted[r].memory.states);
    sum += at_refresh[r];
  }
  EXPECT_GT(sum, 0);
  // Where every step refreshes, these are bytes of ordinary ones.
  const Plan always = always_helped();
  const TrialResult two = run_trial({.plan = always, .steps = 2});
  const std::vector<RankCost> each = predict(always);
  for (size_t r = 0; r < each.size(); ++r) {
    int64_t teams = 0;
    for (const Collective collective :
         {Collective::kTeamSums, Collective::kTeamFactors})
      teams += each[r].wire[static_cast<size_t>(collective)].sent();
    EXPECT_EQ(teams, at_refresh[r]);
    EXPECT_EQ(two.sent[r].teams, 2 * teams);
  }
}

TEST(Helpers, GoOnFromWholeOwnersAndTheReverse) {
  const Plan whole = helper_plan("dp=2,tp=2", false);
  const Plan helped = helper_plan("tp=4", true);
  const Plan other = helper_plan("dp=2,tp=2", true);
  expect_states_go_on(whole, {{&whole, &helped},
                              {&helped, &whole},
                              {&helped, &other},
                              {&other, &helped}});
}

// The step would have been a refresh.
TEST(Helpers, SkipAStepWithANonfiniteGradientOnAllRanks) {
  expect_steps_skipped_alike(
      {helper_plan("tp=4", false), helper_plan("tp=4", true)});
}

// A few of the random faults of fault_trials_heavy_test.cc.
TEST(Helpers, EndTogetherWhenARankFails) {
  for (uint64_t seed = 1001; seed <= 1006; ++seed) {
    std::string words;
    const FaultTrial trial = random_helper_fault(seed, words);
    const FaultOutcome outcome = run_fault(trial);
    SCOPED_TRACE(cat(words, ", ", outcome.stage));
    ASSERT_TRUE(outcome.happened);
    expect_fault_words(trial, outcome);
    expect_team_is_named(trial, outcome);
  }
}

// In both exchanges of a matrix: that of the triangle and that of the factor.
// Numbers are those of all ranks, not of the home's.
TEST(Helpers, AreNamedWithTheirOwnerAndTheirMatrix) {
  for (const std::string rule : {"soap", "shampoo"}) {
    FaultTrial trial;
    trial.plan = helper_plan("dp=2,tp=4", true,
                             {{"precondition_frequency", "1"}}, "zero1", rule);
    const HelpedMatrix matrix =
        std::ranges::max(helped_matrices(trial.plan), {}, &HelpedMatrix::owner);
    ASSERT_GE(matrix.owner, 4);  // in the second home
    trial.kind = Fault::kThrowInOperation;
    trial.label = matrix.name + ", ";
    const int32_t bystander = 4 + (matrix.owner == 4 || matrix.helper == 4);
    for (const int32_t victim : {matrix.owner, matrix.helper, bystander})
      for (trial.moment = 0; trial.moment < 2; ++trial.moment) {
        trial.victim = victim;
        SCOPED_TRACE(cat(rule, ", rank ", victim, ", exchange ", trial.moment,
                         " of ", matrix.label()));
        const FaultOutcome outcome = run_fault(trial);
        ASSERT_TRUE(outcome.happened);
        EXPECT_THAT(outcome.stage, testing::StartsWith("teams"));
        EXPECT_EQ(outcome.label, matrix.label());
        expect_fault_words(trial, outcome);
        expect_team_is_named(trial, outcome);
      }
  }
}

// While one of the two decomposes its factor, the other waits for it.
TEST(Helpers, AreNamedIfTheyFailWhileTheyDecompose) {
  for (const std::string rule : {"soap", "shampoo"}) {
    const PlanWish wish{.mesh = "tp=2",
                        .rule = rule,
                        .options = {{"precondition_frequency", "1"}}};
    FaultTrial trial;
    trial.plan = share_matrices(
        small_plan(model_of({matrix_tensor("square", 32, 32, Cut::kRows)}),
                   wish),
        [](size_t) { return 2; });
    const HelpedMatrix matrix = helped_matrices(trial.plan).front();
    trial.at = "decompose";
    trial.victim = matrix.helper;
    for (const Fault kind : {Fault::kThrow, Fault::kStall}) {
      trial.kind = kind;
      const FaultOutcome outcome = run_fault(trial);
      SCOPED_TRACE(cat(rule, " ", outcome.stage));
      ASSERT_TRUE(outcome.happened);
      expect_fault_words(trial, outcome);
      EXPECT_THAT(words_of_others(trial, outcome),
                  testing::HasSubstr(quoted(matrix.label())));
    }
  }
}

}  // namespace
}  // namespace canzona::runtime::helpers_test
