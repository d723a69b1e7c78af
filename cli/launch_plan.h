// A LaunchPlan is what `canzona launch` is to start: which command, on how many
// ranks, by which starter.
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

struct LaunchFlags {
  int ranks = 0;
  int max_restarts = 3;
  std::string elastic;
  std::string grace = "5s";
  std::string mpirun;
  bool json = false;
  std::string program;  // for tests
  std::string as_rank;  // the folder to report to
  int start = 0;        // so many keepers, without mpirun
  std::vector<std::string> command;
};

// MIN:MAX of --elastic.
struct ElasticRange {
  int least = 0, most = 0;
};

struct LaunchPlan {
  // This program, by the path that it was started from: what lies there later
  // may be another build.
  std::string self;
  std::string program;
  std::vector<std::string> command;
  bool is_train = false;
  std::optional<TrainConfig> config;  // of train, as far as it is known here
  std::optional<ElasticRange> elastic;
  int num_ranks = 0;
  // "mpi"; "tcp": processes that meet over sockets; "thread": one process.
  std::string transport;
  std::string mpirun;
  bool is_open_mpi = true;
  std::chrono::milliseconds grace{0};
};

// Says what the user may not expect, such as ranks that are threads.
LaunchPlan settle_launch(const LaunchFlags& a, const Output& out);

// True if the run can be dealt over so many ranks; without a configuration
// nobody knows, and train itself will tell.
bool fits_ranks(const std::optional<TrainConfig>& config, int num_ranks);

// The command of one attempt, and what its processes are told.
std::vector<std::string> attempt_words(const LaunchPlan& plan,
                                       const std::vector<std::string>& command,
                                       const std::string& folder);
std::vector<std::pair<std::string, std::string>> variables_of(
    const LaunchPlan& plan);

}  // namespace canzona::cli
