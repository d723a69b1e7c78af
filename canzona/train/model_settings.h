// The architecture that `canzona train --model` trains, as keys of the
// configuration.
//
//   Settings given = model_settings("Qwen3-0.6B/config.json");
//   given[1].key;   // "model.layers"
//
// Settings that do not belong to the architecture (batch, length, rates) stay
// the preset's.
#pragma once

#include <string>
#include <string_view>

#include "canzona/train/config.h"
#include "canzona/train/settings.h"

namespace canzona::train {

// `source` is a preset of the planner (canzona models), an HF config.json, or a
// folder with one. UsageError names the first key that the decoder does not
// support.
Settings model_settings(const std::string& source);

// The same for a text; `file` is for messages and origins.
Settings config_json_settings(std::string_view text, const std::string& file);

// The same for a model that a configuration describes.
Settings architecture_settings(const TrainConfig& config,
                               const std::string& origin);

// Throws UsageError if the configuration describes another model than
// `settings`, which were among those that it was made from; names the key, both
// values and where they come from. The model's name, its context and the
// coefficient of the balancing loss may differ.
void refuse_contradictions(const TrainConfig& config, const Settings& settings);

}  // namespace canzona::train
