// A hundred faults of random kind, rank, stage, mesh, rule and strategy, a
// hundred on ranks that share matrices in teams, a hundred on owners, their
// helpers and ranks beside them, and a hundred where blocks have owners of
// their own: all other ranks end in time and name the culprit.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "canzona/base/text.h"
#include "canzona/runtime/testing/test_block_plans.h"
#include "canzona/runtime/testing/test_fault_trials.h"
#include "canzona/runtime/testing/test_helper_faults.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_team_plans.h"

namespace canzona::runtime::fault_trials_heavy_test {
namespace {

constexpr uint64_t kTrials = 100;
constexpr double kGrace = 1;  // second beyond the deadline

FaultTrial random_trial(uint64_t seed, std::string& words) {
  Random dice(seed);
  PlanWish wish;
  wish.mesh = dice.pick<std::string>(
      {"dp=2", "dp=4", "tp=2", "tp=4", "dp=2,tp=2", "dp=2,ep=2,tp=2"});
  wish.strategy = dice.pick(strategy_names());
  wish.rule = dice.pick<std::string>({"muon", "shampoo", "soap", "adamw"});
  wish.options = quick(wish.rule);
  FaultTrial trial;
  trial.plan = small_plan(
      wish.mesh.find("ep") == std::string::npos ? toy_model() : toy_moe(),
      wish);
  trial.kind = dice.pick<Fault>({Fault::kThrow, Fault::kStall, Fault::kLeave});
  trial.victim = static_cast<int>(
      dice.next() % static_cast<uint64_t>(trial.plan.mesh.world()));
  trial.moment = dice.next();
  words =
      cat("trial ", seed, ": ", wish.rule, " ", wish.strategy, " ", wish.mesh,
          ", kind ", static_cast<int>(trial.kind), ", rank ", trial.victim);
  return trial;
}

// Draws the kind of a fault, where collectives count as places, too, its rank
// and its moment.
void draw_any_fault(Random& dice, FaultTrial& trial) {
  trial.kind = dice.pick(kAllFaults);
  trial.victim = static_cast<int>(
      dice.next() % static_cast<uint64_t>(trial.plan.mesh.world()));
  trial.moment = dice.next();
}

// Matrices shared by teams of all sizes, and some that are not shared.
FaultTrial random_team_trial(uint64_t seed, std::string& words) {
  Random dice(seed);
  const auto mesh =
      dice.pick<std::string>({"tp=2", "tp=4", "dp=2,tp=2", "dp=2,tp=4"});
  const auto form = dice.pick<std::string>({"gram", "symmetric", "standard"});
  FaultTrial trial;
  trial.plan =
      team_plan(mesh, strips(dice.pick<int>({2, 8}), form), [&](size_t) {
        return dice.pick<int32_t>({1, 2, 4});
      });
  draw_any_fault(dice, trial);
  words = cat("trial ", seed, ": teams, ", form, " ", mesh, ", kind ",
              static_cast<int>(trial.kind), ", rank ", trial.victim);
  return trial;
}

// Blocks with refreshes in some steps and not in others.
FaultTrial random_block_trial(uint64_t seed, std::string& words) {
  Random dice(seed);
  const auto mesh =
      dice.pick<std::string>({"tp=2", "tp=4", "dp=2,tp=2", "dp=2,tp=4"});
  const auto rule = dice.pick<std::string>({"shampoo", "soap"});
  FaultTrial trial;
  trial.plan = block_plan(block_wish(rule, mesh, dice.pick<int>({1, 3})));
  draw_any_fault(dice, trial);
  words = cat("trial ", seed, ": blocks, ", rule, " ", mesh, ", kind ",
              static_cast<int>(trial.kind), ", rank ", trial.victim);
  return trial;
}

// "teams all_to_all_v in a refresh"
std::string place_of(const FaultTrial& trial, const FaultOutcome& outcome) {
  const PlanPart& part = trial.plan.parts.front();
  const auto facts = make_rule_facts(part.rule, part.rule_options);
  return cat(outcome.stage,
             facts->refreshes(outcome.step, 0) ? " in a refresh" : "");
}

template <class MakeTrial>
void expect_faults_end_in_time(const MakeTrial& make_trial) {
  double slowest = 0;
  std::map<std::string, int> stages;
  for (uint64_t seed = 1; seed <= kTrials; ++seed) {
    std::string words;
    const FaultTrial trial = make_trial(seed, words);
    const FaultOutcome outcome = run_fault(trial);
    SCOPED_TRACE(cat(words, ", ", outcome.stage));
    ASSERT_TRUE(outcome.happened);
    ++stages[place_of(trial, outcome)];
    const double limit =
        std::chrono::duration<double>(trial.deadline).count() + kGrace;
    expect_fault_words(trial, outcome);
    expect_team_is_named(trial, outcome);
    for (const double seconds : outcome.seconds) {
      EXPECT_LE(seconds, limit);
      slowest = std::max(slowest, seconds);
    }
  }
  std::cout << kTrials << " faults, the last rank ended " << slowest
            << " s after one:";
  for (const auto& [stage, count] : stages)
    std::cout << " " << stage << " " << count << ",";
  std::cout << "\n";
}

TEST(Faults, AtRandomMomentsEndEveryRankInTime) {
  expect_faults_end_in_time(random_trial);
}

TEST(Faults, AtRandomMomentsOfTeamsEndEveryRankInTime) {
  expect_faults_end_in_time(random_team_trial);
}

TEST(Faults, AtRandomMomentsOfOwnersAndHelpersEndEveryRankInTime) {
  expect_faults_end_in_time(random_helper_fault);
}

TEST(Faults, AtRandomMomentsOfBlocksEndEveryRankInTime) {
  expect_faults_end_in_time(random_block_trial);
}

}  // namespace
}  // namespace canzona::runtime::fault_trials_heavy_test
