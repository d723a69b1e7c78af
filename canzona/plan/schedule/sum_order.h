// Gradients of data-parallel ranks are added in the order of the balanced
// binary tree over all of them (comm/wire_ops.h), although they are added group
// by group (zero.h).
//
//   if (adds_replicas_at_once(plan)) …
//
// For dp=6 the tree is ((0 + 1) + (2 + 3)) + (4 + 5): pairs are subtrees,
// groups of three are not. Pure.
#pragma once

#include <bit>
#include <cstdint>

#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/rank_group.h"

namespace canzona {

// True if the sums of `group` neighbours, added by the tree, equal the tree's
// sum of all `count`. A power of two is a subtree wherever it begins; any other
// number only if it is the whole tree.
constexpr bool is_subtree(int32_t group, int32_t count) {
  return group == count || std::has_single_bit(static_cast<uint32_t>(group));
}

// True if gradients that are cut over z2 ranks have the same bits as whole
// ones, provided that a rank adds one micro-batch per step. z1 and z3 do not
// matter.
constexpr bool keeps_bits(const ZeroSizes& sizes, int32_t homes) {
  return is_subtree(sizes.z2, homes);
}

// The same for a plan, whose groups may add node by node
// (schedule/rank_group.h), which may differ between stages and tp ranks.
inline bool keeps_bits(const PlanPart& part) {
  const ZeroSizes& sizes = part.options.zero.sizes;
  if (!keeps_bits(sizes, part.mesh.homes())) return false;
  for (int32_t stage = 0; stage < part.mesh.pp; ++stage)
    for (int32_t t = 0; t < part.mesh.tp; ++t) {
      const Levels levels = levels_of(
          part,
          group_of(part, part.mesh.rank(stage, 0, t), GroupKind::kGradients));
      if (levels.across > 1 && !is_subtree(levels.inside, sizes.z2))
        return false;
    }
  return true;
}

// True if every rank adds the gradients that it keeps over all groups, as first
// published (zero.h).
inline bool adds_everywhere(const PlanPart& part) {
  return part.options.zero.replica_sum == ReplicaSum::kAllReduce;
}

// True if the sum over a replica's own groups would not be a subtree. Then the
// groups of all replicas are added at once: each rank adds a share of what it
// keeps, and ranks that keep the same elements exchange their shares. This
// moves as many bytes as one sum after the other, but more of them between
// replicas.
inline bool adds_replicas_at_once(const PlanPart& part) {
  const ZeroOptions& zero = part.options.zero;
  const auto [z1, z2, z3] = zero.sizes;
  return part.num_replicas() > 1 && zero.replica_sum == ReplicaSum::kScatter &&
         !is_subtree(z1 / z2, part.mesh.homes() / z2);
}

}  // namespace canzona
