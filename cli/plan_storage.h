// `canzona plan --storage` and `canzona plan --layout`, and the files that they
// write.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "canzona/plan/storage/storage_plan.h"
#include "cli/plan_arguments.h"

namespace canzona::cli {

// Plans the storage that the file of --storage describes.
Outcome plan_storage(const PlanArguments& arguments, const Output& out);

// Plans the storage that a layout of PyTorch gives a model.
Outcome plan_layout(const PlanArguments& arguments, const Output& out);

// UsageError names an option that has a meaning with --layout alone.
void refuse_layout_options(const PlanArguments& arguments);

struct StoragePlanFile {
  StoragePlan plan;
  std::vector<std::string> violations;  // empty: valid
};

// Returns nothing if the file does not claim to be a plan of given storage. A
// plan that cannot be read completely is a violation, and `plan` is then empty.
std::optional<StoragePlanFile> read_storage_plan(const std::string& path);

}  // namespace canzona::cli
