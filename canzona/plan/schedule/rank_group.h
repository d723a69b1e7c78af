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

#include <cstdint>
#include <string>

#include "canzona/plan/plan.h"

namespace canzona {

// Converts between rank numbers and coordinates in a mesh.
//
//   const Coordinates me = coordinates_of(plan.mesh, world.rank());
//   plan.mesh.rank(me.stage, me.home, me.t) == me.rank
//   int32_t home = me.home_in(buffer);   // among those that share the buffer
//   const Coordinates there = in_grid(part, rank);  // in one of the replicas
//
// Ranks of a part's mesh are ranks of the part; ranks of its grid (zero.h) are
// ranks within one replica. No other file takes rank numbers apart. Values; any
// thread.
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

  // True if the rank holds the tensors of a buffer; then home_in() is its home.
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

// Return the replica that rank `rank` of a part belongs to, and its coordinates
// in that replica.
inline int32_t replica_of(const PlanPart& part, int32_t rank) {
  return rank % part.mesh.ranks_per_stage() / part.grid.ranks_per_stage();
}
inline Coordinates in_grid(const PlanPart& part, int32_t rank) {
  const int32_t per_stage = part.grid.ranks_per_stage();
  return coordinates_of(
      part.grid,
      rank / part.mesh.ranks_per_stage() * per_stage + rank % per_stage);
}
// Returns the rank of the part that is `grid_rank` of a replica.
inline int32_t rank_in_part(const PlanPart& part, int32_t grid_rank,
                            int32_t replica) {
  const int32_t per_stage = part.grid.ranks_per_stage();
  return grid_rank / per_stage * part.mesh.ranks_per_stage() +
         replica * per_stage + grid_rank % per_stage;
}
// Returns the node of a rank of the whole plan. For ranks of a part:
// PlanPart::node_of.
inline int32_t node_of(const PlanOptions& options, int32_t rank) {
  return rank / options.ranks_per_node;
}
// Returns the first plane of a rank's home.
inline int32_t first_of_home(const Mesh& mesh, int32_t rank) {
  return rank - rank % mesh.tp;
}

// The data-parallel ranks that hold a tensor: their number, and which of them a
// rank is.
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

// Data-parallel ranks (homes) of one tp rank, unless stated otherwise.
enum class GroupKind {
  kAll,         // the whole part
  kSums,        // a replica's ranks that keep the same slices of gradients
  kExperts,     // homes of one ep coordinate, if no slices are cut
  kPublish,     // a replica's ranks that keep the same slices of parameters
  kReplicas,    // ranks of all replicas that keep what this one keeps
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
// node, which leaves their bits unchanged (sum_order.h). Uses only mesh,
// options and ep coordinate, as do the functions below.
void check_levels(const PlanPart& part);

// Returns the reach that is executed: two levels in plain storage only if some
// group spans several nodes with more than one rank on each; kAuto becomes two
// levels if every group allows them and no bit changes, else direct.
Reach settled_reach(const Plan& plan);
// Returns why kAuto became direct although groups span nodes; empty otherwise.
std::string why_direct(const Plan& plan);

}  // namespace canzona
