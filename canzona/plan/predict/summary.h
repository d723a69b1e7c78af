// The figures a plan is judged by.
#pragma once

#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/predict/predict.h"

namespace canzona {

PlanSummary summarize(const PlanPart& part, const std::vector<RankCost>& ranks);
PlanSummary summarize(const Plan& plan, const std::vector<RankCost>& ranks);

// Those of the plan and of all its parts, filled in.
void summarize(Plan& plan);

}  // namespace canzona
