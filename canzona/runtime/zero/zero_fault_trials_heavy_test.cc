// A hundred random faults in runs of hierarchical ZeRO: all other ranks end in
// time and name the culprit.
#include <algorithm>
#include <iostream>
#include <map>

#include "canzona/runtime/zero/test_zero_fault_trials.h"

namespace canzona::runtime::zero_fault_trials_heavy_test {
namespace {

constexpr double kGrace = 1;  // second beyond the deadline

TEST(ZeroFaults, AHundredEndEveryRankInTime) {
  double slowest = 0;
  std::map<std::string, int> stages;
  for (uint64_t seed = 101; seed <= 200; ++seed) {
    std::string words;
    const FaultTrial trial = random_zero_fault(seed, words);
    const FaultOutcome outcome = run_fault(trial);
    SCOPED_TRACE(cat(words, ", ", outcome.stage));
    ASSERT_TRUE(outcome.happened);
    ++stages[outcome.stage];
    expect_fault_words(trial, outcome);
    const double limit =
        std::chrono::duration<double>(trial.deadline).count() + kGrace;
    for (const double seconds : outcome.seconds) {
      EXPECT_LE(seconds, limit);
      slowest = std::max(slowest, seconds);
    }
  }
  std::cout << "the last rank ended " << slowest << " s after a fault:";
  for (const auto& [stage, count] : stages)
    std::cout << " " << stage << " " << count << ",";
  std::cout << "\n";
}

}  // namespace
}  // namespace canzona::runtime::zero_fault_trials_heavy_test
