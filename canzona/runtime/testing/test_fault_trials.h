// A rank that fails at a random moment of a step, for tests: what the others
// report, and how soon.
//
//   FaultOutcome outcome = run_fault({.plan = plan, .kind = Fault::kStall,
//                                     .victim = 2, .moment = 17});
//   EXPECT_THAT(outcome.words[0], HasSubstr("rank 2"));
//
// Moments are counted in calls of the victim's engine, which come from every
// stage (gradients announced, checked, prepared and gathered, factors
// decomposed, matrices transformed, scattered, applied and published), or in
// the collectives of all its threads.
#pragma once

#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <vector>

#include "canzona/base/text.h"
#include "canzona/plan/plan.h"
#include "canzona/runtime/runtime.h"

namespace canzona::runtime {

enum class Fault {
  kThrow,             // throws in a stage
  kStall,             // stalls in a stage until all others have ended
  kLeave,             // returns between stages as if the run were complete
  kThrowInOperation,  // throws in a collective, in whichever thread
  kStallInOperation,
};
inline const std::vector<Fault> kAllFaults = {
    Fault::kThrow, Fault::kStall, Fault::kLeave, Fault::kThrowInOperation,
    Fault::kStallInOperation};
inline bool is_stall(Fault kind) {
  return kind == Fault::kStall || kind == Fault::kStallInOperation;
}
inline bool is_in_stage(Fault kind) {
  return kind == Fault::kThrow || kind == Fault::kStall;
}
inline bool is_in_operation(Fault kind) {
  return kind == Fault::kThrowInOperation || kind == Fault::kStallInOperation;
}

struct FaultTrial {
  Plan plan;
  Fault kind = Fault::kThrow;
  int victim = 0;
  // Modulo the number of calls, of collectives or of places between stages.
  uint64_t moment = 0;
  int64_t step = 2;  // or later, if that step has fewer calls; after the first
  // Counts only stages, or collectives of groups, whose names begin so:
  // "decompose", "teams".
  std::string at = {};
  // Counts only collectives whose labels begin so: "layers.0.up, ".
  std::string label = {};
  RuntimeOptions runtime = {};
  std::chrono::milliseconds deadline{1000};  // a busy machine is not a fault
};

struct FaultOutcome {
  bool happened = false;  // the victim reached its moment
  std::string stage;      // where that was
  std::string label;      // of the collective, if it was in one
  int64_t step = 0;
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

// Returns what the other ranks say, a line each.
inline std::string words_of_others(const FaultTrial& trial,
                                   const FaultOutcome& outcome) {
  std::vector<std::string> words = outcome.words;
  words.erase(words.begin() + trial.victim);
  return join(words, "\n");
}

// True if all exchanges of teams in a message have the names of ranks.
inline bool has_names_of_teams(const std::string& words) {
  constexpr std::string_view kGroup = " of teams ";
  for (size_t at = words.find(kGroup); at != std::string::npos;
       at = words.find(kGroup, at + 1)) {
    const size_t label = words.find('\'', at);
    const std::string named =
        words.substr(label, words.find('\'', label + 1) - label);
    if (named.find(", team (") == std::string::npos &&
        named.find(", owner ") == std::string::npos)
      return false;
  }
  return true;
}

// Whoever waits for a team names the matrix and the ranks that share it. If a
// rank says why it fails in such an exchange, all others know which that was.
// An owner always waits for its helper; a helper that has sent what it found
// does not wait for its owner.
inline void expect_team_is_named(const FaultTrial& trial,
                                 const FaultOutcome& outcome) {
  const bool in_team = outcome.stage.starts_with("teams");
  const auto names_it = testing::HasSubstr(quoted(outcome.label));
  for (size_t r = 0; r < outcome.words.size(); ++r) {
    if (std::cmp_equal(r, trial.victim)) continue;
    EXPECT_TRUE(has_names_of_teams(outcome.words[r])) << outcome.words[r];
    if (in_team && !is_stall(trial.kind)) {
      EXPECT_THAT(outcome.words[r], names_it) << "rank " << r;
    }
  }
  if (in_team && outcome.label.ends_with(cat("helper ", trial.victim))) {
    EXPECT_THAT(words_of_others(trial, outcome), names_it);
  }
}

// Faults of every kind, at moments spread over a plan of four ranks.
inline void expect_ranks_end_together(const Plan& plan, uint64_t num_faults) {
  for (uint64_t i = 0; i < num_faults; ++i) {
    FaultTrial trial;
    trial.plan = plan;
    trial.kind = kAllFaults[i % kAllFaults.size()];
    trial.victim = static_cast<int>(i % 4);
    trial.moment = 1 + i * 37;
    const FaultOutcome outcome = run_fault(trial);
    SCOPED_TRACE(cat("fault ", i, ", ", outcome.stage));
    ASSERT_TRUE(outcome.happened);
    expect_fault_words(trial, outcome);
  }
}

}  // namespace canzona::runtime
