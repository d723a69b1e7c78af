#include "canzona/plan/schedule/team_strips.h"

#include <algorithm>

#include "canzona/base/index.h"
#include "canzona/plan/schedule/coordinates.h"
#include "canzona/plan/schedule/routes.h"
#include "canzona/rules/strips.h"

namespace canzona {

bool has_teams(const PlanPart& part) {
  for (size_t m = 0; m < part.matrices.size(); ++m)
    if (part.owners[m].size() > 1) return true;
  return false;
}

bool has_teams(const Plan& plan) {
  return std::any_of(plan.parts.begin(), plan.parts.end(),
                     [](const PlanPart& part) { return has_teams(part); });
}

Rectangle strips_of_member(MatrixShape shape, int strips, int32_t size,
                           int32_t member) {
  const auto [rows, cols] = shape;
  const std::vector<int64_t> borders =
      strip_borders(std::max(rows, cols), strips);
  const int64_t first = borders[index(int64_t{member} * strips / size)];
  const int64_t end = borders[index((int64_t{member} + 1) * strips / size)];
  if (rows > cols) return {first, end - first, 0, cols};
  return {0, rows, first, end - first};
}

Rectangle meet(const Rectangle& a, const Rectangle& b) {
  const Extent rows =
      Extent{a.first_row, a.num_rows}.meet({b.first_row, b.num_rows});
  const Extent cols =
      Extent{a.first_col, a.num_cols}.meet({b.first_col, b.num_cols});
  return {rows.first, rows.count, cols.first, cols.count};
}

std::vector<int64_t> elements_within(const PlanPart& part, int32_t matrix,
                                     std::span<const Rectangle> within) {
  std::vector<int64_t> out(index(part.grid.tp), 0);
  for (const Route& route : routes_of(part, matrix))
    for (const Rectangle& rectangle : within)
      out[index(route.t)] += meet(route, rectangle).elements();
  return out;
}

std::vector<int32_t> nodes_for_teams(const PlanPart& part) {
  std::vector<int32_t> out;
  int32_t number = -1;
  const auto same_node = [&](int32_t a, int32_t b) {
    for (int32_t replica = 0; replica < part.num_replicas(); ++replica)
      if (part.node_of(rank_in_part(part, a, replica)) !=
          part.node_of(rank_in_part(part, b, replica)))
        return false;
    return true;
  };
  for (int32_t r = 0; r < part.grid.world(); ++r) {
    if (r % part.grid.tp == 0 || !same_node(r - 1, r)) ++number;
    out.push_back(number);
  }
  return out;
}

}  // namespace canzona
