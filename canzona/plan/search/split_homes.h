// Homes of tensors that hold several matrices. Such a tensor goes to one home
// as a whole, but its matrices are dealt to the tp ranks there, so the
// objective is the makespan inside each home, not its total load.
#pragma once

#include "canzona/plan/search/bundles.h"

namespace canzona {

// loads[c]: the loads of the matrices of one tensor of class c.
using MatrixLoads = std::vector<std::vector<std::vector<int64_t>>>;

// Moves and swaps single tensors between the home with the largest makespan and
// others as long as both end below it. `homes` has one bundle per home;
// `budget` limits the number of homes dealt on trial. Returns the largest
// makespan of a home.
int64_t improve_split_homes(Bundles& homes, const MatrixLoads& loads,
                            int32_t tp, int64_t budget);

// Another start: deals all matrices, longest first, to the least loaded rank;
// the first matrix of a tensor decides the home of the others. `homes` must be
// empty.
void deal_split_longest_first(Bundles& homes, const MatrixLoads& loads,
                              int32_t tp);

}  // namespace canzona
