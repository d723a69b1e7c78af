// What teams cost: ticks of members and heads, and bytes of sums and factors.
//
//   TeamCosts costs(*rule, basis, links);
//   for (const TeamSize& size : costs.sizes({5120, 51200}, cost)) …
//
// A step begins with the strips' parts of the norm, which everybody gets, and
// gets again where strips were scaled. A
// segment of it is a sum, which the members add by a reduce-scatter and hand to
// the head in rounded pieces, and a factor, of which the head hands an even
// piece to each of the others, who pass theirs on to each other
// (schedule/team_exchange.h). Not for several threads.
#pragma once

#include <map>

#include "canzona/plan/makespan/team_sizes.h"
#include "canzona/plan/plan.h"

namespace canzona {

// What one member of a team sends and receives in a step, beside the routes of
// its strips.
struct TeamBytes {
  int64_t sums_sent = 0;
  int64_t sums_received = 0;
  int64_t factors_sent = 0;
  int64_t factors_received = 0;
};
// `member`: its place in the list of owners; 0 is the head.
TeamBytes team_bytes(const StripFacts& facts, int32_t size, int32_t member);

// Ticks of a part of a matrix's flops, rounded up: a table measures whole
// matrices, whose parts run at the same rate.
int64_t ticks_of_part(Ticks whole, int64_t part, Flops flops);

// Ticks of a whole matrix whose strips go one by one: what each strip takes
// before and after the rest.
struct StripTicks {
  int64_t sum = 0, rest = 0, multiply = 0;
};

class TeamCosts {
 public:
  // All must outlive the costs.
  TeamCosts(const RuleFacts& rule, const CostBasis& basis, const Links& links)
      : rule_(rule), basis_(basis), links_(links) {}

  const StripFacts& strips(MatrixShape shape) { return of(shape).strips; }

  // Sizes up to the number of strips, `most` at most. A rule that refreshes
  // tells nothing of refreshes in strips: its matrices stay whole.
  TeamSizes sizes(MatrixShape shape, const MatrixCost& cost, int32_t most);

  // The cost of a team that a plan has, whether its size is allowed or not.
  TeamSize team(MatrixShape shape, const MatrixCost& cost, int32_t size);

  StripTicks strip_ticks(MatrixShape shape, const MatrixCost& cost);

 private:
  struct OfShape {
    StripFacts strips;
    Flops work;
  };
  const OfShape& of(MatrixShape shape);
  // Ticks that sums and factors are on their way.
  int64_t link_ticks(const StripFacts& facts, int32_t size) const;

  const RuleFacts& rule_;
  const CostBasis& basis_;
  const Links& links_;
  std::map<MatrixShape, OfShape> known_;
};

}  // namespace canzona
