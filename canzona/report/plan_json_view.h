// All that `canzona plan` prints, as one JSON object. (plan.json itself, the
// decisions alone, comes from canzona/plan/plan_json.h.)
#pragma once

#include <string>

#include "canzona/report/report_plan.h"

namespace canzona {

std::string plan_view_json(const ReportPlan& shown);

}  // namespace canzona
