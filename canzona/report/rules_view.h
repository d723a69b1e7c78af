// Shows what the rules tell of themselves: `canzona rules`.
#pragma once

#include <string>

#include "canzona/report/terminal.h"

namespace canzona {

// All rules in a few words, or one of them with options, presets and states;
// UsageError names the nearest rule there is.
std::string rules_text(const std::string& rule, const Ink& ink);
// One object; "" for all rules.
std::string rules_json(const std::string& rule);

}  // namespace canzona
