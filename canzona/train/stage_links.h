// The groups of ranks with which a rank computes forward and backward.
//
//   ModelGroups groups(world, plan.mesh, place);
//   Parallel parallel = groups.parallel(plan);
//
// All ranks must construct theirs at the same time; `world` must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "canzona/comm/courier.h"
#include "canzona/model/decoder_config.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/schedule/rank_group.h"

namespace canzona::train {

// The order in which a pipeline stage works on its micro-batches: one forward,
// one backward (1F1B). A stage runs ahead by as many forwards as there are
// stages behind it, then takes turns, so that it never holds the activations
// of more micro-batches than that plus one.
//
//   for (const StageTask& task : schedule_1f1b(stage, stages, 8)) …
//
// Stage 1 of 3 with 4 micro-batches: F0 F1 B0 F2 B1 F3 B2 B3.

// Micro-batches [micro_batch, micro_batch + count), all through one layer
// before the next.
struct StageTask {
  bool forward = true;
  int64_t micro_batch = 0;
  int64_t count = 1;
  friend bool operator==(const StageTask&, const StageTask&) = default;
};

std::vector<StageTask> schedule_1f1b(int64_t stage, int64_t num_stages,
                                     int64_t num_micro_batches);

// Pairs the forwards that follow each other at the beginning and the backwards
// at the end: F0F1 B0 F2 B1 F3 B2B3. Forwards are paired from the first on,
// backwards from the last, so that all stages have the same pairs. No more
// micro-batches are in flight than before. It cannot deadlock: the forwards
// before a stage's first backward need no backward, and no forward waits for
// the backwards after its last forward.
std::vector<StageTask> pair_neighbours(std::span<const StageTask> tasks);

// Returns the largest number of micro-batches between forward and backward at
// once.
int64_t most_in_flight(int64_t stage, int64_t num_stages,
                       int64_t num_micro_batches);
// Returns the largest number of micro-batches in one backward; 1 if there is
// none.
int64_t most_together(std::span<const StageTask> tasks);
// Returns how often a gradient is announced: once for each backward.
int64_t num_announcements(std::span<const StageTask> tasks);

// The calls of a pipeline stage that executes tasks; the schedule
// (plan/schedule/iteration.h) says what a rank then does, in order.
//
//   const auto calls = stage_calls(plan.model, plan.mesh, stage, tasks);
//   runtime.begin_iteration(waited_modules(calls), num_announcements(tasks));
//
// A stage that has a tied embedding but not the head first uses it once more,
// to lend it to the head's stage.
std::vector<TrainerCall> stage_calls(const Model& model, const Mesh& mesh,
                                     int32_t stage,
                                     std::span<const StageTask> tasks);
// Returns the modules that the calls wait for, in order.
std::vector<int32_t> waited_modules(std::span<const TrainerCall> calls);

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

}  // namespace canzona::train
