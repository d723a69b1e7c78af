// Plans of storage that is given: `plan --placed`, and such files for the verbs
// that look at plans.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "canzona/plan/placed/placed_plan.h"
#include "cli/plan_arguments.h"
#include "cli/verbs.h"

namespace canzona::cli {

// `canzona plan --placed FILE`. UsageError names the option that the file
// leaves nothing to, and for a bad file the tensor and the rank.
Outcome plan_placed(const PlanArguments& arguments, const Output& out);

struct PlacedPlanFile {
  PlacedPlan plan;
  std::vector<std::string> violations;  // empty: sound
};

// None if the file does not say that it is a plan of given storage. A plan that
// cannot be read to its end is a violation, and `plan` is empty then.
std::optional<PlacedPlanFile> read_placed_plan(const std::string& path);

}  // namespace canzona::cli
