// Shows what hierarchical ZeRO (plan/zero.h) does in a plan: sizes, who
// exchanges with whom over which links, pools, and the cost of replicas. Plans
// in parts show dense tensors and experts separately; the experts of all ep
// coordinates are alike. Plans without slices and replicas show nothing.
#pragma once

#include <string>

#include "canzona/report/document.h"
#include "canzona/report/shown_plan.h"
#include "canzona/sim/zero_search.h"

namespace canzona {

bool has_zero(const Plan& plan);

// "once per node, on nodes of 8 ranks", or "direct: " and why: the outcome of
// automatic collectives.
std::string collectives_text(const Plan& plan);

// The facts and operations, in JSON the member "zero"; empty if there is
// nothing to show.
Document zero_view(const ReportPlan& shown);
Value sizes_value(const ZeroSizes& sizes);

}  // namespace canzona
