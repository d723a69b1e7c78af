// Some random faults; a hundred are in zero_fault_trials_heavy_test.cc.
#include "canzona/runtime/zero/test_zero_fault_trials.h"

namespace canzona::runtime::zero_fault_trials_test {
namespace {

TEST(ZeroFaults, AtRandomMomentsEndEveryRank) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::string words;
    FaultTrial trial = random_zero_fault(seed, words);
    trial.deadline = std::chrono::milliseconds(1500);
    const FaultOutcome outcome = run_fault(trial);
    SCOPED_TRACE(cat(words, ", ", outcome.stage));
    ASSERT_TRUE(outcome.happened);
    expect_fault_words(trial, outcome);
  }
}

}  // namespace
}  // namespace canzona::runtime::zero_fault_trials_test
