// The groups of ranks in which a part's operations take place.
//
//   const RankGroup group = group_of(part, rank, GroupKind::kSums);
//   for (int32_t i = 0; i < group.count; ++i) … group.rank(i) …
//
// Every group is a run of ranks at equal distances; only those of experts with
// context parallelism, which have several of them, are runs of such runs. Ranks
// are those of the part (plan.h), in ascending order; the groups of one kind
// never meet. Pure.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "canzona/plan/coordinates.h"
#include "canzona/plan/plan.h"

namespace canzona {

// Data-parallel ranks (homes) of one tp rank, unless stated otherwise.
enum class GroupKind {
  kAll,         // the whole part
  kSums,        // a replica's ranks that keep the same slices of gradients
  kExperts,     // homes of one ep coordinate, if no slices are cut
  kPublish,     // a replica's ranks that keep the same slices of parameters
  kReplicas,    // ranks of all replicas that keep what this one keeps
  kAllGroups,   // kSums of all replicas together
  kParameters,  // z3 consecutive homes, over which modules are gathered
  kGradients,   // z2 consecutive homes, over which modules are scattered
  kExchange,    // planes of one home of the grid, tensor parallelism included
};
inline constexpr int kNumGroupKinds = 9;

struct RankGroup {
  int32_t first = 0;
  int32_t step = 1;
  int32_t count = 1;
  // After every `run` ranks, the next sequence begins `stride` after this one.
  int32_t run = 1;
  int32_t stride = 1;

  int32_t rank(int32_t i) const {
    return first + i / run * stride + i % run * step;
  }
  // Returns a member's number, or -1.
  int32_t number_of(int32_t rank) const;
  friend bool operator==(const RankGroup&, const RankGroup&) = default;
};

// Returns the group of a kind that contains a rank of the part; a group of one
// if the part has no such groups.
RankGroup group_of(const PlanPart& part, int32_t rank, GroupKind kind);
// True if the part has groups of this kind, even of a single rank.
bool has_groups(const PlanPart& part, GroupKind kind);

// A group exchanges data across nodes either directly, between all pairs, or in
// two levels that send once per node (zero.h). Two levels require the same
// number of consecutive ranks of the group on each of its nodes. Groups inside
// one node, and groups with one rank per node, are always direct.
struct Levels {
  int32_t inside = 1;  // ranks of each level; the product is the group's size
  int32_t across = 1;  // 1: direct, even across nodes
  friend bool operator==(const Levels&, const Levels&) = default;
};
// True if groups of this kind use two levels where possible: those of modules
// if slices are cut, those of sums and publishing in plain storage.
bool has_levels(const PlanPart& part, GroupKind kind);
Levels levels_of(const PlanPart& part, const RankGroup& group);
// Returns the levels of the rank's group of a kind; direct unless has_levels().
Levels levels_of(const PlanPart& part, int32_t rank, GroupKind kind);
// Return the members on a rank's own node, and those with the same position on
// the other nodes.
RankGroup inside_level(const RankGroup& group, const Levels& levels,
                       int32_t rank);
RankGroup across_level(const RankGroup& group, const Levels& levels,
                       int32_t rank);

// Returns the bytes in which a rank's groups stage sums of gradients
// (base/sum_staging.h) in host memory; on a device it is up to kMostSumStaging
// for each level.
int64_t sum_staging_of(const PlanPart& part, int32_t rank);

// Throws UsageError if the plan asks for two levels and a group does not allow
// them. Sums of plain storage require a power of two of a group's ranks on each
// node, which leaves their bits unchanged. Uses only mesh, options and
// ep coordinate, as do the functions below.
void check_levels(const PlanPart& part);

// Returns the reach that is executed: two levels in plain storage only if some
// group spans several nodes with more than one rank on each; kAuto becomes two
// levels if every group allows them and no bit changes, else direct.
Reach settled_reach(const Plan& plan);
// Returns why kAuto became direct although groups span nodes; empty otherwise.
std::string why_direct(const Plan& plan);

// Gradients of data-parallel ranks are added in the order of the balanced
// binary tree over all of them (comm/wire_ops.h), although they are added group
// by group (zero.h).
//
//   if (adds_replicas_at_once(plan)) …
//
// For dp=6 the tree is ((0 + 1) + (2 + 3)) + (4 + 5): pairs are subtrees,
// groups of three are not.

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

// The same for a plan, whose groups may add node by node, which may differ
// between stages and tp ranks.
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
