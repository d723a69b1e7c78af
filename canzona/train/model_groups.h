// The ranks with which a rank computes forward and backward.
//
//   ModelGroups groups(world, plan.mesh, place);
//   Parallel parallel = groups.parallel(plan);
//
// All ranks make theirs at once; `world` outlives it.
#pragma once

#include <memory>

#include "canzona/model/parallel.h"
#include "canzona/plan/schedule/coordinates.h"

namespace canzona {

class ModelGroups {
 public:
  ModelGroups(Communicator& world, const Mesh& mesh, const Coordinates& place)
      : tp_(world.split(mesh.tp > 1 ? place.rank / mesh.tp : -1, place.t,
                        "tp of the model")),
        ep_(world.split(mesh.ep > 1 ? ep_color(mesh, place) : -1, place.ep,
                        "ep of the model")) {}

  Parallel parallel(const Plan& plan, const Coordinates& place) const {
    const int64_t layers = plan.model.num_layers / plan.mesh.pp;
    return {.tp = tp_.get(),
            .ep = ep_.get(),
            .first_layer = place.stage * layers,
            .num_layers = layers,
            .has_embedding = place.stage == 0,
            .has_head = place.stage == plan.mesh.pp - 1};
  }

 private:
  static int ep_color(const Mesh& mesh, const Coordinates& place) {
    const int32_t expert_plane = place.expert_home * mesh.tp + place.t;
    return place.stage * mesh.expert_homes() * mesh.tp + expert_plane;
  }

  std::unique_ptr<Communicator> tp_, ep_;
};

}  // namespace canzona
