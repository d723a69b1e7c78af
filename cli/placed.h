// Plans of given storage: `plan --placed`, and reading such files for verbs
// that show plans.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "canzona/plan/placed/placed_plan.h"
#include "cli/plan_arguments.h"
#include "cli/verbs.h"

namespace canzona::cli {

// Runs `canzona plan --placed FILE`. UsageError names an option that does not
// apply with the file and, for a bad file, the tensor and the rank.
Outcome plan_placed(const PlanArguments& arguments, const Output& out);

struct PlacedPlanFile {
  PlacedPlan plan;
  std::vector<std::string> violations;  // empty: valid
};

// Returns nothing if the file does not claim to be a plan of given storage. A
// plan that cannot be read completely is a violation, and `plan` is then empty.
std::optional<PlacedPlanFile> read_placed_plan(const std::string& path);

}  // namespace canzona::cli
