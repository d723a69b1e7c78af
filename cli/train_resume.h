// Finds what `canzona train --resume` goes on from.
#pragma once

#include <optional>
#include <string>

#include "canzona/saving/load_state.h"
#include "canzona/train/config.h"
#include "cli/config.h"

namespace canzona::cli {

// A checkpoint that was found and what it was saved with. Every process of a
// run finds the same one; only its small files have been looked at.
struct ResumePoint {
  LoadRequest request;
  std::string name;    // "checkpoint of step 100"
  std::string hash;    // of its manifest
  Settings saved;      // its configuration
  bool has_run_state;  // false: weights alone
  bool is_of_run;      // it lies in the folder of this run
};

// `wish`: "auto", a step, or the path of a checkpoint, of a folder of
// checkpoints or of another run. Nothing is found if `auto` has nothing to go
// on from. UsageError for a path that is none, without --run, and for weights
// alone, which a run cannot go on from; DataLost for a
// step that is not there, or if nothing that is there can be read.
std::optional<ResumePoint> find_resume_point(const std::string& wish,
                                             const std::string& run);

// Returns what a run that was killed before its first checkpoint was asked to
// do, by its summary; nothing if the folder has no summary, or that of a run
// that has ended. UsageError if it cannot be read.
std::optional<Settings> unfinished_settings(const std::string& run);

// "the newest checkpoint is of step 100; canzona train --run … goes on from
// it";
// "" if there is none.
std::string resume_hint(const std::string& run);

// The configuration of a run that goes on: what was saved, and over it what is
// given. `launched`: ranks that a launcher has started, 0: none. UsageError for
// a key that must stay.
TrainConfig resumed_config(const ConfigArguments& arguments,
                           const ResumePoint& point, int64_t launched);

}  // namespace canzona::cli
