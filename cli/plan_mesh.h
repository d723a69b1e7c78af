// `canzona plan --mesh auto` and `canzona compare --meshes`: the mesh is
// searched for.
#pragma once

#include "cli/output.h"
#include "cli/plan_arguments.h"
#include "cli/verbs.h"

namespace canzona::cli {

// Throws UsageError if an option that only the search takes was given without
// it.
void refuse_mesh_options(const PlanArguments& arguments);

Outcome plan_mesh(const PlanArguments& arguments, const Output& out);
Outcome compare_meshes(const PlanArguments& arguments, const Output& out);

}  // namespace canzona::cli
