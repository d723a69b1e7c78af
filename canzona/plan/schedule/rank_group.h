// The groups of ranks in which a part's operations go on.
//
//   const RankGroup group = group_of(part, rank, GroupKind::kSums);
//   for (int32_t i = 0; i < group.count; ++i) … group.rank(i) …
//
// Every group is a run of ranks at equal distances; only those of experts with
// context parallelism, which have several of them, are runs of such runs. Ranks
// are those of the part (parts.h), in ascending order; the groups of one kind
// never meet. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "canzona/plan/plan.h"

namespace canzona {

// Data-parallel ranks (homes) of one tp rank, unless something else is said.
enum class GroupKind {
  kAll,         // the whole part
  kSums,        // a replica's ranks that keep the same slices of gradients
  kExperts,     // homes of one ep coordinate, where no slices are cut
  kPublish,     // a replica's ranks that keep the same slices of parameters
  kReplicas,    // those that keep what this one keeps, in all replicas
  kAllGroups,   // kSums of all replicas together (sum_order.h)
  kParameters,  // z3 consecutive homes, over which modules are gathered
  kGradients,   // z2 consecutive homes, over which modules are scattered
  kExchange,    // planes of one home of the grid, tensor parallelism included
};
inline constexpr int kNumGroupKinds = 9;

struct RankGroup {
  int32_t first = 0;
  int32_t step = 1;
  int32_t count = 1;
  // Every `run` ranks the next ones begin `stride` after these did.
  int32_t run = 1;
  int32_t stride = 1;

  int32_t rank(int32_t i) const {
    return first + i / run * stride + i % run * step;
  }
  // A member's number, or -1.
  int32_t number_of(int32_t rank) const;
  friend bool operator==(const RankGroup&, const RankGroup&) = default;
};

// The group of a kind in which a rank of the part stands; alone where the part
// has no such groups.
RankGroup group_of(const PlanPart& part, int32_t rank, GroupKind kind);
// True if the part has groups of this kind, of more than one rank or not.
bool has_groups(const PlanPart& part, GroupKind kind);

// A group reaches over nodes all with all, or in two levels that send once per
// node (zero.h). Two levels want equally many ranks of a group, one after the
// other, on each of its nodes. Groups inside one node, and such with one rank
// on every node, are direct anyway.
struct Levels {
  int32_t inside = 1;  // ranks of each level; their product is the group
  int32_t across = 1;  // 1: direct, whichever nodes the ranks are on
  friend bool operator==(const Levels&, const Levels&) = default;
};
// True if groups of this kind go in two levels where they can: those of modules
// where slices are cut, those of sums and publishing in plain storage.
bool has_levels(const PlanPart& part, GroupKind kind);
Levels levels_of(const PlanPart& part, const RankGroup& group);
// Returns the levels of the group of a kind in which the rank stands; direct
// unless has_levels().
Levels levels_of(const PlanPart& part, int32_t rank, GroupKind kind);
// A member's ranks of its node, and those that stand where it stands on theirs.
RankGroup inside_level(const RankGroup& group, const Levels& levels,
                       int32_t rank);
RankGroup across_level(const RankGroup& group, const Levels& levels,
                       int32_t rank);

// Returns the bytes in which a rank's groups stage sums of gradients
// (base/sum_staging.h), in memory of the host; on a device it is up to
// kMostSumStaging for each level.
int64_t sum_staging_of(const PlanPart& part, int32_t rank);

// UsageError if the plan asks for two levels and a group does not allow it.
// Sums of plain storage want a power of two of a group's ranks on each node,
// which leaves their bits as they are (sum_order.h). Looks at mesh, options and
// ep coordinate alone, as do the functions below.
void check_levels(const PlanPart& part);

// Returns the plan's reach as it is to be carried out: two levels in plain
// storage only if some group reaches over several nodes with more than one rank
// on each; kAuto becomes two levels if every group allows them and no bit
// changes, else direct.
Reach settled_reach(const Plan& plan);
// Says why kAuto came to direct although groups reach over nodes; else empty.
std::string why_direct(const Plan& plan);

}  // namespace canzona
