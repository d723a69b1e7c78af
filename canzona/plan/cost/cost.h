// The cost of a matrix is in ticks from the rule's formula (one tick = one
// flop, times at a nominal rate), or from a measured table (one tick = one
// picosecond).
#pragma once

#include <map>

#include "canzona/plan/cost/cost_table.h"
#include "canzona/plan/options.h"
#include "canzona/plan/plan.h"

namespace canzona {

// Used where nothing was measured, and said so in every output.
inline constexpr double kNominalFlopsPerSecond = 400e12;

class CostModel {
 public:
  // `table` may be null; both must outlive the model.
  CostModel(const RuleFacts& rule, const CostTable* table);

  const CostBasis& basis() const { return basis_; }
  MatrixCost cost(MatrixShape shape) const;
  // Returns the cost that `weight` balances; `copies` scales elements of a
  // tensor that tp does not cut, so that numel counts TP shards.
  MatrixCost weight(Weight weight, MatrixShape shape, int32_t copies) const;

 private:
  MatrixCost compute(MatrixShape shape) const;

  const RuleFacts& rule_;
  const CostTable* table_;
  CostBasis basis_;
  mutable std::map<MatrixShape, MatrixCost> known_;
};

}  // namespace canzona
