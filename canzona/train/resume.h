// A run that goes on from a checkpoint is asked to do what the checkpoint was
// saved with, and over it what the user gives now.
//
//   Settings base = saved_settings(config_json, "checkpoint of step 100");
//   TrainConfig saved = make_config(base);
//   base.insert(base.end(), given.begin(), given.end());
//   TrainConfig config = make_config(base);
//   require_resumable(saved, config, "checkpoint of step 100");
//
// The table of keys (config_keys.cc) says whether a key may change, resume.cc
// whether an option of a rule may. Pure.
#pragma once

#include <string>
#include <string_view>

#include "canzona/train/config.h"
#include "canzona/train/settings.h"

namespace canzona {

// A checkpoint's config.json, but for the folder that the run wrote to and the
// number of its ranks, which the mesh has. UsageError names the key.
Settings saved_settings(std::string_view config_json,
                        const std::string& origin);

// True if an option of a rule may change: it alters neither which states the
// rule keeps nor what they mean.
bool may_change_option(const std::string& option);

// UsageError lists the keys that stay and differ, with both values and where
// the new one was given.
void require_resumable(const TrainConfig& saved, const TrainConfig& now,
                       const std::string& origin);

}  // namespace canzona
