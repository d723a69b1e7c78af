// What ranks should say of one that failed, for tests of faults.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/text.h"
#include "canzona/runtime/fault_trials.h"

namespace canzona {

// Of a rank that has failed or left all others know. One that merely does not
// come may first be missed by somebody who waits for it through a third; then
// that third one tells of it.
inline void expect_fault_words(const FaultTrial& trial,
                               const FaultOutcome& outcome) {
  const auto names = testing::ContainsRegex(
      cat("ranks? ([0-9]+, )*", trial.victim, "([^0-9]|$)"));
  bool named = false;
  for (size_t r = 0; r < outcome.words.size(); ++r) {
    if (std::cmp_equal(r, trial.victim)) continue;
    named = named || testing::Value(outcome.words[r], names);
    if (!is_stall(trial.kind))
      EXPECT_THAT(outcome.words[r], names) << "rank " << r;
    else
      EXPECT_THAT(outcome.words[r], testing::HasSubstr("did not"))
          << "rank " << r;
  }
  EXPECT_TRUE(named) << join(outcome.words, "\n");
}

}  // namespace canzona
