// `canzona plan --placed` and `canzona plan --layout`, and the files that they
// write.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "canzona/plan/placed/placed_plan.h"
#include "cli/plan_arguments.h"

namespace canzona::cli {

// Plans the storage that the file of --placed describes.
Outcome plan_placed(const PlanArguments& arguments, const Output& out);

// Plans the storage that a layout of PyTorch gives a model.
Outcome plan_layout(const PlanArguments& arguments, const Output& out);

// UsageError names an option that has a meaning with --layout alone.
void refuse_layout_options(const PlanArguments& arguments);

struct PlacedPlanFile {
  PlacedPlan plan;
  std::vector<std::string> violations;  // empty: valid
};

// Returns nothing if the file does not claim to be a plan of given storage. A
// plan that cannot be read completely is a violation, and `plan` is then empty.
std::optional<PlacedPlanFile> read_placed_plan(const std::string& path);

}  // namespace canzona::cli
