// Finds what `canzona train --resume` resumes from.
#pragma once

#include <optional>
#include <string>

#include "canzona/saving/load_state.h"
#include "canzona/train/config.h"
#include "cli/config.h"

namespace canzona::cli {

// A checkpoint that was found, and the settings it was saved with. Every
// process of a run finds the same one; only its small files have been read.
struct ResumePoint {
  LoadRequest request;
  std::string name;    // "checkpoint of step 100"
  std::string hash;    // of its manifest
  Settings saved;      // its configuration
  bool has_run_state;  // false: weights only
  bool is_of_run;      // it is in the folder of this run
};

// `wish` is "auto", a step, or the path of a checkpoint, of a folder of
// checkpoints or of another run. Returns nothing if `auto` finds nothing to
// resume from. Throws UsageError for a path that is none of these, without
// --run, and for weights only, from which a run cannot resume; throws DataLost
// for a step that does not exist, or if nothing there can be read.
std::optional<ResumePoint> find_resume_point(const std::string& wish,
                                             const std::string& run);

// Returns the settings of a run that was killed before its first checkpoint,
// from its summary; nothing if the folder has no summary, or that of a finished
// run. Throws UsageError if it cannot be read.
std::optional<Settings> unfinished_settings(const std::string& run);

// "the newest checkpoint is of step 100; canzona train --run … goes on from
// it";
// "" if there is none.
std::string resume_hint(const std::string& run);

// Returns the configuration of a resumed run: what was saved, overridden by
// what is given. `launched` is the number of ranks started by a launcher; 0:
// none. Throws UsageError for a key that must stay.
TrainConfig resumed_config(const ConfigArguments& arguments,
                           const ResumePoint& point, int64_t launched);

}  // namespace canzona::cli
