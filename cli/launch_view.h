// Writes what `canzona launch` reports about a run: its last line, and JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "canzona/launch/policy.h"

namespace canzona::cli {

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
  std::string transport;  // "mpi" or "thread"
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
