// A LaunchPlan says what `canzona launch` starts: which command, on how many
// ranks, with which starter. A LaunchReport says what became of it.
//
//   LaunchPlan plan = settle_launch(flags, out);   // or UsageError
//   run_attempt({.words = attempt_words(plan, command, folder),
//                .variables = variables_of(plan), …});
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "canzona/launch/policy.h"
#include "cli/config.h"
#include "cli/output.h"

namespace canzona::cli {

// How many ranks launch starts at most, on this one machine.
inline constexpr int kMostRanks = 256;

struct LaunchFlags {
  std::optional<int64_t> ranks;  // as the command needs, if not given
  int max_restarts = 3;
  std::string elastic;
  std::string grace = "5s";
  std::string mpirun;
  bool json = false;
  std::string program;  // for tests
  std::string as_rank;  // the folder to report to
  int start = 0;        // number of keepers, without mpirun
  std::vector<std::string> command;
};

// --elastic MIN:MAX.
struct ElasticRange {
  int least = 0, most = 0;
};

struct LaunchPlan {
  // This program, by the path that it was started from: what is there later may
  // be another build.
  std::string self;
  std::string program;
  std::vector<std::string> command;
  bool is_train = false;
  std::optional<TrainConfig> config;  // for train, as far as known here
  Settings saved;  // of the checkpoint that it resumes from; empty: none
  std::optional<ElasticRange> elastic;
  int num_ranks = 0;
  // "mpi"; "tcp" for processes that meet over sockets; "thread" for one
  // process.
  std::string transport;
  std::string mpirun;
  bool is_open_mpi = true;
  std::chrono::milliseconds grace{0};
};

// Prints notes on what the user may not expect, such as ranks that are threads.
LaunchPlan settle_launch(const LaunchFlags& a, const Output& out);

// Returns why `train` would refuse to run the command on this many ranks: its
// batch, ZeRO sizes or teams do not fit them. Returns "" if it would not, and
// without a configuration, where train itself checks.
std::string why_not_on(const LaunchPlan& plan, int num_ranks);

// Returns the command of one attempt, with what its processes are told.
std::vector<std::string> attempt_words(const LaunchPlan& plan,
                                       const std::vector<std::string>& command,
                                       const std::string& folder);
std::vector<std::pair<std::string, std::string>> variables_of(
    const LaunchPlan& plan);

// What `canzona launch` reports about a run: its last line, and JSON.

struct LaunchedAttempt {
  int num_ranks = 0;
  AttemptResult result;
  Cause cause;
  std::string operation;  // in which survivors were, by their own account; "":
                          // unknown
  std::string reason;     // error line of the rank that failed; "": none
  int64_t step = 0;       // in which it failed; 0: unknown
};

struct LaunchReport {
  std::string transport;  // "mpi", "tcp" or "thread"
  std::string run;        // its folder; "": none
  int max_restarts = 0;
  std::vector<LaunchedAttempt> attempts;
  // The newest checkpoint that verifies.
  std::optional<int64_t> checkpoint = {};
  // Why it was not restarted, if it might have been; "" if there is nothing to
  // say.
  std::string why_not_again = {};

  const LaunchedAttempt& last() const { return attempts.back(); }
  int num_restarts() const { return static_cast<int>(attempts.size()) - 1; }
  int exit_status() const { return last().cause.status; }
};

// "rank 2 lost (SIGKILL) at step 118 in all_to_all_v 'micro-group 7' · last
// checkpoint step 100 (verified) · … · exit 4"
std::string launch_line(const LaunchReport& report);

// Returns every figure of the run as one object.
std::string launch_json(const LaunchReport& report);

}  // namespace canzona::cli
