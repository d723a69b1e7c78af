// The blocks of a matrix that a rule updates as matrices of their own
// (RuleFacts::block), so that each may have an owner of its own.
//
//   const MatrixBlocks blocks(rule, {5120, 17408});
//   for (int32_t b = 0; b < blocks.count(); ++b)
//     blocks.at(b), blocks.cost(whole, b)
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <map>

#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/ranges.h"

namespace canzona {

// Of more blocks nobody is told apart: such a matrix has one owner.
inline constexpr int64_t kMostBlocks = 1024;

class MatrixBlocks {
 public:
  MatrixBlocks(const RuleFacts& rule, MatrixShape shape);

  // True if blocks may have different owners.
  bool fall_apart() const { return count_ > 1; }
  int32_t count() const { return count_; }
  // Blocks are numbered row by row.
  Rectangle at(int32_t number) const;
  MatrixShape shape_of(int32_t number) const;
  // Its share of the matrix's cost, rounded up; `least_cost` is rounded down.
  MatrixCost cost(const MatrixCost& whole, int32_t number) const;
  MatrixCost least_cost(const MatrixCost& whole, int32_t number) const;

 private:
  template <class TicksOfPart>
  MatrixCost share(const MatrixCost& whole, int32_t number,
                   const TicksOfPart& ticks_of) const;

  MatrixShape shape_;
  MatrixShape block_;
  int32_t count_ = 1;
  int64_t across_ = 1;  // blocks side by side
  RuleWork work_;       // of the matrix
  std::map<MatrixShape, RuleWork> of_block_;
};

// True if a matrix of the request falls apart.
bool has_blocks(const SettledRequest& request, const RuleFacts& rule);

}  // namespace canzona
