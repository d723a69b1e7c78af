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
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/plan.h"

namespace canzona {

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

// Returns the world rank at home `home` of the tensor's buffer, in plane `t` of
// the grid; with replicas, the rank in the first one.
inline int32_t rank_of(const PlanPart& part, int32_t tensor, int32_t home,
                       int32_t t) {
  const Buffer& buffer = part.buffer_of(tensor);
  return part.rank_in_whole(rank_in_part(
      part, part.grid.rank(buffer.stage, part.stage_home(buffer, home), t), 0));
}
// Returns the ranks of all planes of the home, in order.
inline std::vector<int32_t> ranks_of_home(const PlanPart& part, int32_t tensor,
                                          int32_t home) {
  std::vector<int32_t> ranks;
  for (int32_t t = 0; t < part.grid.tp; ++t)
    ranks.push_back(rank_of(part, tensor, home, t));
  return ranks;
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

}  // namespace canzona
