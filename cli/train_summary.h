// Writes what `canzona train` prints about a run before it starts, with
// --dry-run, and at its end.
#pragma once

#include <string>

#include "canzona/data/token_source.h"
#include "canzona/report/terminal.h"
#include "canzona/trace/run_summary.h"
#include "cli/train_job.h"

namespace canzona::cli {

// Describes how the run is cut and what that sends; "" for plain ZeRO-1.
std::string zero_line(const TrainJob& job);

// Shows memory by kind and the predicted step, for --dry-run.
std::string memory_table(const TrainJob& job, const Ink& ink);
std::string dry_run_json(const TrainConfig& config, const TrainJob& job,
                         const TokenSource& tokens);

// Describes what is going to run: everything but the result, with the state
// "running".
RunSummary describe_run(const TrainConfig& config, const TrainJob& job,
                        const TokenSource& tokens,
                        const std::string& transport);
// The same with the result, in the state in which the run ended.
RunSummary with_result(RunSummary summary, const TrainJob& job,
                       const TrainResult& result);

}  // namespace canzona::cli
