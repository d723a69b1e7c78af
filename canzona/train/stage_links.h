// The groups of ranks with which a rank computes forward and backward.
//
//   ModelGroups groups(world, plan.mesh, place);
//   Parallel parallel = groups.parallel(plan);
//
// All ranks must construct theirs at the same time; `world` must outlive it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "canzona/comm/courier.h"
#include "canzona/model/parallel.h"
#include "canzona/plan/schedule/coordinates.h"

namespace canzona {

class ModelGroups {
 public:
  ModelGroups(Communicator& world, const Mesh& mesh, const Coordinates& at)
      : tp_(world.split(mesh.tp > 1 ? at.rank / mesh.tp : -1, at.t,
                        "tp of the model")),
        ep_(world.split(mesh.ep > 1 ? ep_color(mesh, at) : -1, at.ep,
                        "ep of the model")) {}

  Parallel parallel(const Plan& plan, const Coordinates& at) const {
    const int64_t layers = plan.model.num_layers / plan.mesh.pp;
    return {.tp = tp_.get(),
            .ep = ep_.get(),
            .first_layer = at.stage * layers,
            .num_layers = layers,
            .has_embedding = at.stage == 0,
            .has_head = at.stage == plan.mesh.pp - 1};
  }

 private:
  static int ep_color(const Mesh& mesh, const Coordinates& at) {
    const int32_t expert_plane = at.expert_home * mesh.tp + at.t;
    return at.stage * mesh.expert_homes() * mesh.tp + expert_plane;
  }

  std::unique_ptr<Communicator> tp_, ep_;
};

// Sends activations and their gradients between pipeline stages.
//
//   StageLinks links(world, mesh, place, micro_batches);
//   links.receive_input(input);          // from the stage before
//   Work sent = links.send_output(output);
//
// Every direction has a communicator and a thread of its own, so that sending
// never waits for the receiver. All ranks must construct theirs at the same
// time, and each stage must send in the order in which its neighbour receives.
// Spans must stay valid until the work is done. One thread at a time; `world`
// must outlive it.

// Sends numbers from one rank to another.
class OneWay {
 public:
  // Connects the two ranks that pass the same `color`; the sender has the lower
  // `key` if `from_lower`. With a color below 0 this rank has no part in it and
  // may call nothing.
  OneWay(Communicator& world, int color, int key, bool from_lower,
         const std::string& name, int capacity);

  Work send(std::span<float> numbers);
  void receive(std::span<float> numbers);  // blocks
  double waited() const { return waited_; }
  double busy() const;

 private:
  Work post(std::span<float> numbers);

  std::string name_;
  int sender_;
  std::unique_ptr<Communicator> pair_;
  std::unique_ptr<Courier> courier_;  // uses the pair
  double waited_ = 0;
};

class StageLinks {
 public:
  StageLinks(Communicator& world, const Mesh& mesh, const Coordinates& at,
             int64_t capacity);

  void receive_input(std::span<float> numbers);
  Work send_output(std::span<float> numbers);
  void receive_output_gradient(std::span<float> numbers);
  Work send_input_gradient(std::span<float> numbers);

  // Seconds that this rank has waited here, and seconds that its links were
  // busy.
  double waited() const;
  double busy() const;

 private:
  std::vector<std::unique_ptr<OneWay>> all_;
  OneWay* input_ = nullptr;
  OneWay* output_ = nullptr;
  OneWay* output_gradient_ = nullptr;
  OneWay* input_gradient_ = nullptr;
};

}  // namespace canzona
