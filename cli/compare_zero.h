// `canzona compare --zero`: sizes instead of strategies, side by side.
#pragma once

#include "cli/output.h"
#include "cli/plan_arguments.h"
#include "cli/verbs.h"

namespace canzona::cli {

Outcome compare_zero(const PlanArguments& arguments, const Output& out);

}  // namespace canzona::cli
