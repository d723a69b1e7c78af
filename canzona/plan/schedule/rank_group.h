// The groups of ranks in which a part's operations go on.
//
//   const RankGroup group = group_of(part, rank, GroupKind::kSums);
//   for (int32_t i = 0; i < group.count; ++i) … group.rank(i) …
//
// Every group is a run of ranks at equal distances; only those of experts with
// context parallelism, which have several of them, are runs of such runs. Ranks
// are those of the part (plan.h), in ascending order; the groups of one kind
// never meet. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "canzona/plan/plan.h"

namespace canzona {

// Coordinates say where a rank stands in a mesh, and back.
//
//   const Coordinates me = coordinates_of(plan.mesh, world.rank());
//   plan.mesh.rank(me.stage, me.home, me.t) == me.rank
//   int32_t home = me.home_in(buffer);   // among those that share the buffer
//   const Coordinates there = in_grid(part, rank);  // in one of the replicas
//
// The ranks of a part's mesh are those of the part, the ranks of its grid
// (zero.h) those of one replica. Nobody else takes a rank's number apart.
// Values; any thread.

struct Coordinates {
  int32_t rank = 0;
  int32_t stage = 0;
  int32_t home = 0;         // among all homes of the stage
  int32_t expert_home = 0;  // among the homes of its ep coordinate
  int32_t dp = 0;
  int32_t cp = 0;
  int32_t ep = 0;
  int32_t t = 0;        // among the planes of its home (mesh.h)
  int32_t place = 0;    // of that plane, 0 unless the mesh is a folded one
  int32_t tp_rank = 0;  // of that plane: t, unless the mesh is a folded one

  // True if the rank holds the tensors of a buffer; home_in() is its home then.
  bool holds(const Buffer& buffer) const {
    return buffer.stage == stage && (buffer.ep < 0 || buffer.ep == ep);
  }
  int32_t home_in(const Buffer& buffer) const {
    return buffer.ep < 0 ? home : expert_home;
  }
};

inline Coordinates coordinates_of(const Mesh& mesh, int32_t rank) {
  Coordinates at;
  at.rank = rank;
  at.t = rank % mesh.tp;
  at.place = mesh.place_of(at.t);
  at.tp_rank = mesh.tp_rank_of(at.t);
  at.home = rank / mesh.tp % mesh.homes();
  at.stage = rank / mesh.ranks_per_stage();
  at.cp = at.home % mesh.cp;
  at.ep = at.home / mesh.cp % mesh.ep;
  at.dp = at.home / (mesh.cp * mesh.ep);
  at.expert_home = at.dp * mesh.cp + at.cp;
  return at;
}

// The replica that rank `rank` of a part belongs to, and where it stands in
// that.
inline int32_t replica_of(const PlanPart& part, int32_t rank) {
  return rank % part.mesh.ranks_per_stage() / part.grid.ranks_per_stage();
}
inline Coordinates in_grid(const PlanPart& part, int32_t rank) {
  const int32_t per_stage = part.grid.ranks_per_stage();
  return coordinates_of(
      part.grid,
      rank / part.mesh.ranks_per_stage() * per_stage + rank % per_stage);
}
// The rank of the part that stands at `grid_rank` of a replica.
inline int32_t rank_in_part(const PlanPart& part, int32_t grid_rank,
                            int32_t replica) {
  const int32_t per_stage = part.grid.ranks_per_stage();
  return grid_rank / per_stage * part.mesh.ranks_per_stage() +
         replica * per_stage + grid_rank % per_stage;
}
// The node of a rank of the whole plan; of a part: PlanPart::node_of.
inline int32_t node_of(const PlanOptions& options, int32_t rank) {
  return rank / options.ranks_per_node;
}
// The first of the planes of a rank's home.
inline int32_t first_of_home(const Mesh& mesh, int32_t rank) {
  return rank - rank % mesh.tp;
}

// The data-parallel ranks that hold a tensor: how many of them there are, and
// which one a rank is.
struct HomeOfTensor {
  int32_t home = 0;
  int32_t num_homes = 1;
};
inline HomeOfTensor home_of(const SettledRequest& plan, const Coordinates& at,
                            const Tensor& tensor) {
  if (ep_of(plan.mesh, plan.model, tensor) < 0)
    return {at.home, plan.mesh.homes()};
  return {at.expert_home, plan.mesh.expert_homes()};
}
inline bool holds(const SettledRequest& plan, const Coordinates& at,
                  const Tensor& tensor) {
  const int32_t e = ep_of(plan.mesh, plan.model, tensor);
  return stage_of(plan.mesh, plan.model, tensor) == at.stage &&
         (e < 0 || e == at.ep);
}

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
