// Writes the figures that the page of a plan draws as members of its JSON:
// loads, buckets cut by owner, micro-groups, teams, memory, bytes and the table
// of tensors.
//
//   write_spread(out, shown);        // of every strategy that is compared
//   write_plan_figures(out, shown);  // of the plan that is shown in detail
//
// docs/compare.md describes the members. Pure; any thread may call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/json_writer.h"
#include "canzona/report/view_parts.h"

namespace canzona {

// Members of the open object: the load of every rank over a period, the memory
// of the fullest one, and the bytes of each collective.
void write_spread(JsonWriter& out, const ReportPlan& shown);

// Members of the open object that one plan has beside those.
void write_plan_figures(JsonWriter& out, const ReportPlan& shown);

// The buckets of those parts in which the busiest rank works, as a list: the
// experts of other ep coordinates are cut alike.
void write_buckets(JsonWriter& out, const ReportPlan& shown);

// The table of tensors. A model has tens of thousands of tensors but few kinds
// of them, so that what repeats is stored once:
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

// The rank with the largest load over a period, the first of equals.
int32_t busiest_rank(const ReportPlan& shown);

// The micro-groups of one home, as rounds of blocks per tp rank.
struct Block {
  size_t matrix = 0;
  double cost = 0;  // ticks, mean over a period
};
struct DrawnRound {
  int32_t number = 0;
  std::vector<std::vector<Block>> blocks;  // per tp rank
};
// The rounds of the home (and stage) of `at`, in order.
std::vector<DrawnRound> rounds_of(const PlanPart& plan, const Coordinates& at);

// A name as literal pieces with a number between each two.
struct NameParts {
  std::vector<std::string> pieces;
  std::vector<int64_t> numbers;
};
// Joined again, the parts give the name exactly: runs of digits that would not
// come back the same (leading zeros, too many digits) stay in the pieces.
NameParts split_name(std::string_view name);

// The tp coordinates that compute the matrices of a tensor, each once; empty:
// every tp rank.
std::vector<int32_t> owners_of_tensor(const PlanPart& plan, int32_t tensor);

}  // namespace canzona
