// make_placed_plan() turns a given storage layout into a finished plan.
//
//   PlacedRequest request = read_placed(text, "storage.json");  //
//   placed_json.h PlacedPlan plan = make_placed_plan(std::move(request)); //
//   UsageError std::vector<std::string> violations = validate(plan);
#pragma once

#include "canzona/plan/cost/cost_table.h"
#include "canzona/plan/placed/placed_plan.h"

namespace canzona {

// Returns the request as a plan stores it: all rule options filled in, empty
// boxes removed. The UsageError names the tensor that cannot be planned.
PlacedRequest settle_placed(PlacedRequest request);

// Returns a plan with the weighed matrices of all matrix-rule tensors, not yet
// assigned, the classes, the shared elements and all derived fields. The
// UsageError names the tensor and rank whose storage breaks the requirements of
// placed_plan.h. If `table` is null, a matrix costs its rule's flops.
PlacedPlan open_placed_plan(PlacedRequest settled, const CostTable* table);

// Throws UsageError if the work of a period does not fit 64 bits.
void check_placed_work(const PlacedPlan& plan);

// Sets the number of rounds of each class from those of its matrices.
void count_placed_rounds(PlacedPlan& plan);

// Returns the plan with owners, rounds, summary and digest.
PlacedPlan make_placed_plan(PlacedRequest request,
                            const CostTable* table = nullptr);

}  // namespace canzona
