// A bound on the memory of a plan that is computed from shapes and sizes alone,
// so that sizes which cannot fit need not be planned.
//
//   RankMemory least = least_memory(request, terms);
//   if (least.total().value() + terms.activations > cap) …
//
// The fullest rank of any plan, with any strategy, needs at least this. States,
// buffers and pools are not included: what they take depends on the plan. Pure.
#pragma once

#include "canzona/plan/make_plan.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/sim/activations.h"

namespace canzona {

// Throws UsageError for sizes that are not possible.
RankMemory least_memory(const PlanRequest& request, const MemoryTerms& terms);

}  // namespace canzona
