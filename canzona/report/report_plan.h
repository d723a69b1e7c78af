// A plan together with what was computed from it, ready to be shown.
//
// The terminal views, the JSON views and the HTML report all take this one
// value, so that a number is computed once and looks the same everywhere.
//
//   ReportPlan shown{plan, predict(plan), measure_balance(plan), seconds};
#pragma once

#include <optional>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/predict/metrics.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/sim/memory_terms.h"

namespace canzona {

struct ReportPlan {
  Plan plan;
  std::vector<RankCost> ranks;
  Balance balance;
  // Shapes parsed → validated plan with digest; 0 for a plan read from a file.
  double plan_seconds = 0;
  // The terms say how `ranks` count gradients, and what is counted beside the
  // plan; none for a plan read from a file, which does not say.
  std::optional<MemoryTerms> terms = {};
};

}  // namespace canzona
