// Where a rank stands in the mesh.
//
//   RankPlace me = place_of(plan.mesh, world.rank());
//   int32_t home = me.home_in(buffer);   // among those that share the buffer
#pragma once

#include <cstdint>

#include "canzona/plan/plan.h"

namespace canzona {

struct RankPlace {
  int32_t rank = 0;
  int32_t stage = 0;
  int32_t home = 0;         // among all homes of the stage
  int32_t expert_home = 0;  // among the homes of its ep coordinate
  int32_t ep = 0;
  int32_t t = 0;

  // Whether it holds the tensors of a buffer, and as which of its homes.
  bool holds(const Buffer& buffer) const {
    return buffer.stage == stage && (buffer.ep < 0 || buffer.ep == ep);
  }
  int32_t home_in(const Buffer& buffer) const {
    return buffer.ep < 0 ? home : expert_home;
  }
};

inline RankPlace place_of(const Mesh& mesh, int32_t rank) {
  RankPlace place;
  place.rank = rank;
  place.t = rank % mesh.tp;
  place.home = rank / mesh.tp % mesh.homes();
  place.stage = rank / mesh.ranks_per_stage();
  place.ep = place.home / mesh.cp % mesh.ep;
  place.expert_home =
      place.home / (mesh.cp * mesh.ep) * mesh.cp + place.home % mesh.cp;
  return place;
}

// The data-parallel ranks that hold a tensor: how many of them there are, and
// which one a rank is.
struct HomeOfTensor {
  int32_t home = 0;
  int32_t num_homes = 1;
};
inline HomeOfTensor home_of(const SettledRequest& plan, const RankPlace& place,
                            const Tensor& tensor) {
  if (ep_of(plan.mesh, plan.model, tensor) < 0)
    return {place.home, plan.mesh.homes()};
  return {place.expert_home, plan.mesh.expert_homes()};
}
inline bool holds(const SettledRequest& plan, const RankPlace& place,
                  const Tensor& tensor) {
  const int32_t e = ep_of(plan.mesh, plan.model, tensor);
  return stage_of(plan.mesh, plan.model, tensor) == place.stage &&
         (e < 0 || e == place.ep);
}

}  // namespace canzona
