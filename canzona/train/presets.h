// Presets of training runs: values under a name.
//
//   tiny       a minute on two cores
//   small      about 9M parameters, for comparisons of rules
//   moe-tiny   tiny with experts
#pragma once

#include <string>
#include <vector>

#include "canzona/train/settings.h"

namespace canzona {

std::vector<std::string> preset_names();
std::string preset_summary(const std::string& preset);

// The preset's values, then those it has for a rule; origin "preset tiny".
// UsageError names an unknown preset and the nearest.
Settings preset_settings(const std::string& preset, const std::string& rule);

}  // namespace canzona
