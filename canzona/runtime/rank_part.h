// One rank's part of a plan, with everything that carries it out; for the
// sources of this room. A rank has one, or two of a plan in parts
// (plan/parts.h), whose steps go on side by side.
//
//   RankPart part(plan, world, engine, options, seat);
//   part.finish_gradients();
//   part.begin_step(step, learning_rate);     // first exchange is on its way
//   part.update_elements(step, {learning_rate, adamw_learning_rate});
//   part.finish_step(step, learning_rate);
#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "canzona/runtime/element_update.h"
#include "canzona/runtime/exchanged_update.h"
#include "canzona/runtime/local_update.h"
#include "canzona/runtime/publisher.h"
#include "canzona/runtime/rank.h"
#include "canzona/runtime/reducer.h"
#include "canzona/runtime/zero/gatherer.h"
#include "canzona/runtime/zero/scatterer.h"

namespace canzona {

struct RankPart {
  RankPart(const PlanPart& plan, Communicator& world, Engine& engine,
           const RuntimeOptions& options, const RankSeat& seat);

  bool holds(int32_t tensor) const;
  std::byte* parameter(int32_t tensor) const;
  float* gradient(int32_t tensor);

  // Whether modules are gathered, and this one is among them.
  bool gathers(int32_t module) const {
    return gatherer != nullptr && gatherer->has(module);
  }
  void begin_iteration(std::span<const int32_t> uses,
                       int64_t num_micro_batches);
  void grad_ready(int32_t tensor);
  void finish_gradients();
  void zero_gradients();

  void begin_step(int64_t step, double learning_rate);
  void update_elements(int64_t step, const ElementRates& rates);
  void finish_step(int64_t step, double learning_rate);

  // Ends the threads, after what was posted.
  void close();

  std::chrono::nanoseconds busy() const;  // of all threads, in operations
  Runtime::PoolUse pool_use() const;

  Rank rank;
  Reducer reducer;
  Publisher publisher;
  ElementUpdate elements;
  std::unique_ptr<LocalUpdate> local;
  std::unique_ptr<ExchangedUpdate> exchanged;
  std::unique_ptr<Gatherer> gatherer;    // where parameters are cut
  std::unique_ptr<Scatterer> scatterer;  // where gradients are
};

}  // namespace canzona
