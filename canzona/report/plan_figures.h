// The figures that the page of a plan draws, as members of its JSON: loads,
// buckets cut by owner, micro-groups, teams, memory, bytes and the table of
// tensors.
//
//   out.add(spread_members(shown));  // for every strategy that is compared
//   out.add(plan_figures(shown));    // for the plan that is shown in detail
//
// docs/compare.md describes the members. What is shown must outlive them. Pure;
// any thread may call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/json_writer.h"
#include "canzona/report/shown_plan.h"

namespace canzona::report {

// The load of every rank over a period, the memory of the fullest rank, and the
// bytes of each collective.
Document spread_members(const ReportPlan& shown);

// The same, and the other figures of one plan.
Document plan_figures(const ReportPlan& shown);

// The buckets of the parts in which the busiest rank works; the experts of
// other ep coordinates are cut alike.
Value buckets_value(const ReportPlan& shown);

// Writes the table of tensors. A model has tens of thousands of tensors but few
// kinds of them, so repeated values are stored once:
//
//   patterns  names without their numbers: ["layers.", ".mlp.up"] with 7 is
//             "layers.7.mlp.up"
//   kinds     [shape, role, cut, rule, cost in ticks, bytes]
//   buckets   [stage, part] of each bucket
//   rows      [pattern, kind, bucket, home, owner, numbers of the name…],
//             home -1: every home; owner: a tp coordinate, several of them in
//             a list, or -1: every tp rank
//   parts     [tp, homes, ep coordinate, its label in the table]
//   mesh      [tp, cp, ep] of the whole, which says where in the world the
//             ranks of a part are
void write_tensors(JsonWriter& out, const Plan& plan);

// Returns the rank with the largest load over a period; the lowest on a tie.
int32_t busiest_rank(const ReportPlan& shown);

// A matrix in a micro-group, as it is drawn.
struct Block {
  size_t matrix = 0;
  double cost = 0;  // ticks, mean over a period
};
struct DrawnRound {
  int32_t number = 0;
  std::vector<std::vector<Block>> blocks;  // per tp rank
};
// Returns the rounds of the home (and stage) of `at`, in order.
std::vector<DrawnRound> rounds_of(const PlanPart& plan, const Coordinates& at);

// A name as literal pieces with a number between each two of them.
struct NameParts {
  std::vector<std::string> pieces;
  std::vector<int64_t> numbers;
};
// Joining the parts gives the name exactly: digits that would not survive as a
// number (leading zeros, too many digits) stay in the pieces.
NameParts split_name(std::string_view name);

// Returns the tp coordinates that compute the matrices of a tensor, each once;
// empty: every tp rank.
std::vector<int32_t> owners_of_tensor(const PlanPart& plan, int32_t tensor);

}  // namespace canzona::report
