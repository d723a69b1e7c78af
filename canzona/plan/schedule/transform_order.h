// What the ranks of a home do in a round between its gather and its scatter, in
// order: the same list on all of them, whoever has a part in a stage.
//
//   for (const TransformStage& stage : transform_order(segments)) …
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/schedule/entry_kind.h"

namespace canzona {

struct TransformStage {
  EntryKind kind;  // kTransform, a stage of a team, or its exchange
  Purpose purpose = Purpose::kNone;  // of the exchange
  int32_t shared = -1;  // number of the matrix that a team shares; -1: of none
  int32_t segment = 0;
};

// `segments`: of each matrix of the round that a team shares.
std::vector<TransformStage> transform_order(std::span<const int32_t> segments);

// The largest of them; 1 without any.
int32_t num_segments(std::span<const int32_t> segments);

// The segment in which a rank computes each of its own matrices, given their
// work in order: every segment gets about as much, the first rather more, since
// what is done in the last one makes the team's updates late.
std::vector<int32_t> spread_over_segments(std::span<const int64_t> work,
                                          int32_t segments);

}  // namespace canzona
