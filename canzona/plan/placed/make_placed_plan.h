// make_placed_plan() turns storage that is given into a finished plan.
#pragma once

#include "canzona/plan/cost/cost_table.h"
#include "canzona/plan/placed/placed_plan.h"

namespace canzona {

// The request as a plan stores it: every rule option in force, boxes without
// elements left out. UsageError, naming the tensor, for a request that cannot
// be planned.
PlacedRequest settle_placed(PlacedRequest request);

// The matrices of all tensors of matrix rules, weighed, of nobody yet; the
// classes, the shared elements and all that is derived. UsageError names tensor
// and rank of storage that is not given as placed_plan.h says. `table` may be
// null: then a matrix costs its rule's flops.
PlacedPlan open_placed_plan(PlacedRequest settled, const CostTable* table);

// UsageError if the work of a period is more than 64 bits count.
void check_placed_work(const PlacedPlan& plan);

// Sets the number of rounds of each class from those of its matrices.
void count_placed_rounds(PlacedPlan& plan);

// The plan with owners, rounds, summary and digest.
PlacedPlan make_placed_plan(PlacedRequest request,
                            const CostTable* table = nullptr);

}  // namespace canzona
