// A rank that fails at a random moment of a step, for tests: what the others
// report, and how soon.
//
//   FaultOutcome outcome = run_fault({.plan = plan, .kind = Fault::kStall,
//                                     .victim = 2, .moment = 17});
//   EXPECT_THAT(outcome.words[0], HasSubstr("rank 2"));
//
// Moments are counted in calls of the victim's engine, which come from every
// stage (gradients announced, checked, prepared and gathered, transformed,
// scattered, applied and published), or in the collectives of all its threads.
#pragma once

#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <vector>

#include "canzona/base/text.h"
#include "canzona/plan/plan.h"
#include "canzona/runtime/runtime.h"

namespace canzona {

enum class Fault {
  kThrow,             // throws in a stage
  kStall,             // stalls in a stage until all others have ended
  kLeave,             // returns between stages as if the run were complete
  kThrowInOperation,  // throws in a collective, in whichever thread
  kStallInOperation,
};
inline bool is_stall(Fault kind) {
  return kind == Fault::kStall || kind == Fault::kStallInOperation;
}

struct FaultTrial {
  Plan plan;
  Fault kind = Fault::kThrow;
  int victim = 0;
  // Modulo the number of calls, of collectives or of places between stages.
  uint64_t moment = 0;
  // Counts only collectives of groups whose names begin so: "teams".
  std::string group = {};
  RuntimeOptions runtime = {};
  std::chrono::milliseconds deadline{1000};  // a busy machine is not a fault
};

struct FaultOutcome {
  bool happened = false;  // the victim reached its moment
  std::string stage;      // where that was
  // By rank: its message when it lost a peer, empty if it did not, and how long
  // after the fault.
  std::vector<std::string> words;
  std::vector<double> seconds;
};

FaultOutcome run_fault(const FaultTrial& trial);

// All other ranks learn of a rank that has failed or left. A rank that merely
// stalls may first be missed by a rank that waits for it through a third; that
// third rank then names it.
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

// Faults of every kind, at moments spread over a plan of four ranks.
inline void expect_ranks_end_together(const Plan& plan, uint64_t num_faults) {
  constexpr Fault kKinds[] = {Fault::kThrow, Fault::kStall, Fault::kLeave,
                              Fault::kThrowInOperation,
                              Fault::kStallInOperation};
  for (uint64_t i = 0; i < num_faults; ++i) {
    FaultTrial trial;
    trial.plan = plan;
    trial.kind = kKinds[i % std::size(kKinds)];
    trial.victim = static_cast<int>(i % 4);
    trial.moment = 1 + i * 37;
    const FaultOutcome outcome = run_fault(trial);
    SCOPED_TRACE(cat("fault ", i, ", ", outcome.stage));
    ASSERT_TRUE(outcome.happened);
    expect_fault_words(trial, outcome);
  }
}

}  // namespace canzona
