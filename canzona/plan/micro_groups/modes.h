// The micro-group modes: how the matrices of a home are put into rounds.
#pragma once

#include <cstdint>
#include <span>

#include "canzona/plan/layout/problem.h"

namespace canzona::plan {

// Gives each matrix a round of its own, with owners round-robin over tp: in
// plan order (`none`), or largest first (`sorted`).
void assign_rounds_in_order(const Problem& p, std::span<const int32_t> matrices,
                            bool owners_known, Assignment& a);
void assign_rounds_sorted(const Problem& p, std::span<const int32_t> matrices,
                          bool owners_known, Assignment& a);

// The published greedy algorithm: matrices go, largest first, into the open
// micro-group as long as longest-first dealing keeps every owner within the
// capacity; otherwise the group is closed ("rollback") and a new one begins.
// Loads start at zero in each group.

// The UsageError names a matrix that exceeds the capacity by itself.
void assign_capacity(const Problem& p, std::span<const int32_t> matrices,
                     bool owners_known, Assignment& a);

// Our mode. Owners are balanced over all rounds (they are dealt here if the
// strategy has not chosen them). Every owner's matrices are spread over the
// same few rounds, so that gather, transform and scatter of different rounds
// overlap. Nothing hides the gather of the first round and the scatter of the
// last, so these two get half as much work as the others, as far as matrices
// allow. No owner exceeds the capacity in a round; a matrix above the capacity
// gets a round of its own.
void assign_balanced_rounds(const Problem& p, std::span<const int32_t> matrices,
                            bool owners_known, Assignment& a);

}  // namespace canzona::plan
