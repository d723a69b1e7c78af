// One rank's share of a part of a plan, with everything that carries it out.
// For the sources of this room. A rank has one part, or two (plan/plan.h),
// whose steps go on side by side.
//
//   RankPart own(part, world, engine, options, track, "");
//   own.finish_gradients();
//   own.begin_step(step, learning_rate);     // starts the first exchange
//   own.elements.run(step, {learning_rate, adamw_learning_rate});
//   own.finish_step(step, learning_rate);
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "canzona/runtime/rank.h"
#include "canzona/runtime/step/updates.h"
#include "canzona/runtime/zero/bucket_traffic.h"
#include "canzona/runtime/zero/module_traffic.h"

namespace canzona::runtime {

struct RankPart {
  RankPart(const PlanPart& part, Communicator& world, Engine& engine,
           const RuntimeOptions& options, Track* track,
           const std::string& prefix);

  bool holds(int32_t tensor) const;
  std::byte* parameter(int32_t tensor) const;
  float* gradient(int32_t tensor);

  // True if modules are gathered and this is one of them.
  bool gathers(int32_t module) const {
    return gatherer != nullptr && gatherer->has(module);
  }
  void begin_iteration(std::span<const int32_t> uses,
                       int64_t num_micro_batches);
  void grad_ready(int32_t tensor);
  void finish_gradients();
  void zero_gradients();

  void begin_step(int64_t step, double learning_rate);
  void finish_step(int64_t step, double learning_rate);
  // Publishes the weights that this rank updates as if they were new.
  void publish_weights();

  // Joins the threads after all posted work.
  void close();

  std::chrono::nanoseconds busy() const;  // of all threads, in operations

  Rank rank;
  Reducer reducer;
  Publisher publisher;
  ElementUpdate elements;
  std::unique_ptr<LocalUpdate> local;
  std::unique_ptr<ExchangedUpdate> exchanged;
  std::unique_ptr<Gatherer> gatherer;    // where parameters are cut
  std::unique_ptr<Scatterer> scatterer;  // where gradients are cut
};

}  // namespace canzona::runtime
