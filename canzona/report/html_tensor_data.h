// The table of tensors as compact JSON for the report's script.
//
// A model has tens of thousands of tensors but few kinds of them, so that
// what repeats is stored once:
//
//   patterns  names without their numbers: ["layers.", ".mlp.up"] with 7 is
//             "layers.7.mlp.up"
//   kinds     [shape, role, cut, rule, cost, cost as text, bytes, bytes as
//             text], cost in ticks
//   buckets   [stage, part] of each bucket
//   rows      [pattern, kind, bucket, home, owner, numbers of the name…],
//             home -1: every home; owner: a tp coordinate, several of them in
//             a list, or -1: every tp rank
//   parts     [tp, homes, ep coordinate, its label in the table]
//   mesh      [tp, cp, ep] of the whole, which says where in the world the
//             ranks of a part are
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/report/in_parts.h"

namespace canzona {

std::string tensor_data_json(const Plan& plan);

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

// What stands before the home of an expert that is planned apart: "ep 1".
std::string part_label(const PlanPart& part);

// Ticks of all matrices of a tensor, mean over a period.
double cost_of_tensor(const SettledRequest& plan, int32_t tensor);

}  // namespace canzona
