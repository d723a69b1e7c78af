// The cost of a matrix: alone, by blocks, and shared by a team.
#pragma once

#include <cstdint>
#include <map>

#include "canzona/plan/cost/cost_table.h"
#include "canzona/plan/makespan/bound.h"
#include "canzona/plan/options.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/ranges.h"

namespace canzona {

// The cost of a matrix in ticks: from the rule's formula (one tick = one flop,
// times at a nominal rate), or from a measured table (one tick = one
// picosecond).

// Used if nothing was measured; every output says so.
inline constexpr double kNominalFlopsPerSecond = 400e12;

class CostModel {
 public:
  // `table` may be null; both must outlive the model. The rate counts without
  // a table.
  CostModel(const RuleFacts& rule, const CostTable* table,
            double flops_per_second = kNominalFlopsPerSecond);

  const CostBasis& basis() const { return basis_; }
  MatrixCost cost(MatrixShape shape) const;
  // Returns the cost that `weight` balances. `copies` scales the elements of a
  // tensor that tp does not cut, so that numel counts TP shards.
  MatrixCost weight(Weight weight, MatrixShape shape, int32_t copies) const;

 private:
  MatrixCost compute(MatrixShape shape) const;

  const RuleFacts& rule_;
  const CostTable* table_;
  CostBasis basis_;
  mutable std::map<MatrixShape, MatrixCost> known_;
};

// The cost of teams: ticks of members and heads, and bytes of sums and factors.
//
//   TeamCosts costs(*rule, basis, links);
//   for (const TeamSize& size : costs.sizes({5120, 51200}, cost)) …
//
// A step begins with the strips' parts of the norm, which everybody gets, and
// gets again where strips were scaled. A
// segment of it is a sum, which the members add by a reduce-scatter and hand to
// the head in rounded pieces, and a factor, of which the head hands an even
// piece to each of the others, who pass theirs on to each other
// (schedule/team_schedule.h). A helper (rules/facts.h) is the second member of
// a team of two, which exchanges a triangle and a factor in refreshes alone.
// Not for several threads.

// The bytes that one member of a team sends and receives in a step, beside the
// routes of its strips.
struct TeamBytes {
  int64_t sums_sent = 0;
  int64_t sums_received = 0;
  int64_t factors_sent = 0;
  int64_t factors_received = 0;
};
// The bytes of a step with factors. `member` is the position in the list of
// owners; 0 is the head.
TeamBytes team_bytes(const StripFacts& facts, int32_t size, int32_t member);
// The same of an ordinary step, which may have none.
TeamBytes ordinary_team_bytes(const StripFacts& facts, int32_t size,
                              int32_t member);

// Returns the ticks of a part of a matrix's flops, rounded up. Tables measure
// whole matrices; their parts are assumed to run at the same rate.
int64_t ticks_of_part(Ticks whole, int64_t part, Flops flops);

class TeamCosts {
 public:
  // All must outlive the costs.
  TeamCosts(const RuleFacts& rule, const CostBasis& basis, const Links& links)
      : rule_(rule), basis_(basis), links_(links) {}

  const StripFacts& strips(MatrixShape shape) { return of(shape).strips; }

  // Returns the sizes up to the number of strips, at most `most`, with their
  // cost over a period.
  TeamSizes sizes(MatrixShape shape, const MatrixCost& cost, int32_t most);

  // Return the cost of a team of a given plan, even if its size is not allowed:
  // in an ordinary step, what a refresh adds, and over a period.
  TeamSize team(MatrixShape shape, const MatrixCost& cost, int32_t size);
  TeamSize refresh(MatrixShape shape, const MatrixCost& cost, int32_t size);
  TeamSize over_period(MatrixShape shape, const MatrixCost& cost, int32_t size);

 private:
  struct OfShape {
    StripFacts strips;
    RuleWork work;
  };
  const OfShape& of(MatrixShape shape);
  TeamSize helped_refresh(const OfShape& of, const MatrixCost& cost) const;
  // Returns the ticks for which sums and factors are in transit, in an ordinary
  // step, and for which factors are, if they are exchanged in refreshes alone.
  int64_t link_ticks(const StripFacts& facts, int32_t size) const;
  int64_t factor_ticks(const StripFacts& facts) const;
  int64_t ticks_in_transit(int64_t bytes, int hops) const;

  const RuleFacts& rule_;
  const CostBasis& basis_;
  const Links& links_;
  std::map<MatrixShape, OfShape> known_;
};

// The blocks of a matrix that a rule updates independently (RuleFacts::block),
// so that each may have its own owner.
//
//   const MatrixBlocks blocks(rule, {5120, 17408});
//   for (int32_t b = 0; b < blocks.count(); ++b)
//     blocks.at(b), blocks.cost(whole, b)
//
// Pure; any thread.

// A matrix with more blocks than this is treated as one block, with one owner.
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
  // Returns the block's share of the matrix's cost, rounded up; `least_cost`
  // rounds down.
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

// True if the rule lets a team share some matrix of the request: by strips, or
// with a helper.
bool can_share_any(const SettledRequest& request, const RuleFacts& rule);

// True if some matrix of the request consists of several blocks.
bool has_blocks(const SettledRequest& request, const RuleFacts& rule);

}  // namespace canzona
