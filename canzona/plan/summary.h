// The figures a plan is judged by.
#pragma once

#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/predict.h"

namespace canzona {

PlanSummary summarize(const Plan& plan, const std::vector<RankCost>& ranks);

}  // namespace canzona
