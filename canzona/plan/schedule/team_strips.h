// Where the members of a team have their strips: the i-th of k members has the
// i-th S/k strips of the long side (canzona/rules/strips.h), all of the other.
//
//   const Rectangle own = strips_of_member({5120, 51200}, 8, 4, 1);
//   const std::vector<int64_t> from = elements_within(part, matrix, own);
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/plan.h"

namespace canzona {

// True if a matrix is shared.
bool has_teams(const PlanPart& part);
bool has_teams(const Plan& plan);

Rectangle strips_of_member(MatrixShape shape, int strips, int32_t size,
                           int32_t member);

// Returns what both rectangles have.
Rectangle meet(const Rectangle& a, const Rectangle& b);

// Elements of a matrix inside `within` that each plane of the home stores, [t].
// Several rectangles do not overlap.
std::vector<int64_t> elements_within(const PlanPart& part, int32_t matrix,
                                     std::span<const Rectangle> within);
inline std::vector<int64_t> elements_within(const PlanPart& part,
                                            int32_t matrix,
                                            const Rectangle& within) {
  return elements_within(part, matrix, std::span(&within, 1));
}

// A number for every rank of the grid: ranks of a home have the same one if
// they share a node in every replica, so that a team may be made of them.
std::vector<int32_t> nodes_for_teams(const PlanPart& part);

}  // namespace canzona
