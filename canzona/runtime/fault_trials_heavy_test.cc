// A hundred faults of random kind, rank, stage, mesh, rule and strategy: all
// others end in time, and say who it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/runtime/fault_trials.h"
#include "canzona/runtime/test_plans.h"

namespace canzona {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Value;

constexpr uint64_t kTrials = 100;
constexpr double kGrace = 1;  // second beyond the deadline

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  uint64_t next() { return bits_at(seed_, drawn_++); }
  template <class Value>
  const Value& one_of(const std::vector<Value>& values) {
    return values[next() % values.size()];
  }

 private:
  uint64_t seed_;
  uint64_t drawn_ = 0;
};

FaultTrial random_trial(uint64_t seed, std::string& words) {
  Dice dice(seed);
  PlanWish wish;
  wish.mesh = dice.one_of<std::string>(
      {"dp=2", "dp=4", "tp=2", "tp=4", "dp=2,tp=2", "dp=2,ep=2,tp=2"});
  wish.strategy = dice.one_of(strategy_names());
  wish.rule = dice.one_of<std::string>({"muon", "shampoo", "soap", "adamw"});
  wish.options = quick(wish.rule);
  FaultTrial trial;
  trial.plan = small_plan(
      wish.mesh.find("ep") == std::string::npos ? toy_model() : toy_moe(),
      wish);
  trial.kind =
      dice.one_of<Fault>({Fault::kThrow, Fault::kStall, Fault::kLeave});
  trial.victim = static_cast<int>(
      dice.next() % static_cast<uint64_t>(trial.plan.mesh.world()));
  trial.moment = dice.next();
  words =
      cat("trial ", seed, ": ", wish.rule, " ", wish.strategy, " ", wish.mesh,
          ", kind ", static_cast<int>(trial.kind), ", rank ", trial.victim);
  return trial;
}

// Of a rank that has failed or left all others know. One that merely does not
// come may first be missed by somebody who waits for it through a third; then
// that third one tells of it.
void expect_words(const FaultTrial& trial, const FaultOutcome& outcome) {
  const auto names =
      ContainsRegex(cat("ranks? ([0-9]+, )*", trial.victim, "([^0-9]|$)"));
  bool named = false;
  for (size_t r = 0; r < outcome.words.size(); ++r) {
    if (std::cmp_equal(r, trial.victim)) continue;
    named = named || Value(outcome.words[r], names);
    if (trial.kind != Fault::kStall)
      EXPECT_THAT(outcome.words[r], names) << "rank " << r;
    else
      EXPECT_THAT(outcome.words[r], HasSubstr("did not")) << "rank " << r;
  }
  EXPECT_TRUE(named) << join(outcome.words, "\n");
}

TEST(Faults, AtRandomMomentsEndEveryRankInTime) {
  double slowest = 0;
  std::map<std::string, int> stages;
  for (uint64_t seed = 1; seed <= kTrials; ++seed) {
    std::string words;
    const FaultTrial trial = random_trial(seed, words);
    const FaultOutcome outcome = run_fault(trial);
    SCOPED_TRACE(cat(words, ", ", outcome.stage));
    ASSERT_TRUE(outcome.happened);
    ++stages[outcome.stage];
    const double limit =
        std::chrono::duration<double>(trial.deadline).count() + kGrace;
    expect_words(trial, outcome);
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

}  // namespace
}  // namespace canzona
