// The verb below `canzona rules`. A build without arithmetic has it too, and
// says what it lacks.
#pragma once

#include "cli/verbs.h"

namespace canzona::cli {

Verb add_rules_check(CLI::App& rules);

}  // namespace canzona::cli
