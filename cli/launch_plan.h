// A LaunchPlan says what `canzona launch` starts: which command, on how many
// ranks, with which starter.
//
//   LaunchPlan plan = settle_launch(flags, out);   // or UsageError
//   run_attempt({.words = attempt_words(plan, command, folder),
//                .variables = variables_of(plan), …});
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/config.h"
#include "cli/output.h"

namespace canzona::cli {

// How many ranks launch starts at most, on this one machine.
inline constexpr int kMostRanks = 256;

struct LaunchFlags {
  int ranks = 0;
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

// True if the run can be divided over this many ranks; without a configuration
// this is unknown, and train itself checks.
bool fits_ranks(const std::optional<TrainConfig>& config, int num_ranks);

// Returns the command of one attempt, with what its processes are told.
std::vector<std::string> attempt_words(const LaunchPlan& plan,
                                       const std::vector<std::string>& command,
                                       const std::string& folder);
std::vector<std::pair<std::string, std::string>> variables_of(
    const LaunchPlan& plan);

}  // namespace canzona::cli
