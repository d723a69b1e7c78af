// A resumed run takes the settings that its checkpoint was saved with,
// overridden by those that the user gives now.
//
//   Settings base = saved_settings(config_json, "checkpoint of step 100");
//   TrainConfig saved = make_config(base);
//   base.insert(base.end(), given.begin(), given.end());
//   TrainConfig config = make_config(base);
//   require_resumable(saved, config, "checkpoint of step 100");
//
// The table of keys (config_keys.cc) says whether a key may change, resume.cc
// whether an option of a rule may.
#pragma once

#include <string>
#include <string_view>

#include "canzona/train/config.h"
#include "canzona/train/settings.h"

namespace canzona {

// Reads a checkpoint's config.json, without the run's folder and the number of
// its ranks, which the mesh has. UsageError names the key.
Settings saved_settings(std::string_view config_json,
                        const std::string& origin);

// True if an option of a rule may change: it affects neither which states the
// rule keeps nor their meaning.
bool may_change_option(const std::string& option);

// Throws UsageError listing the keys that must not change but do, with both
// values and where the new one was given.
void require_resumable(const TrainConfig& saved, const TrainConfig& now,
                       const std::string& origin);

}  // namespace canzona
