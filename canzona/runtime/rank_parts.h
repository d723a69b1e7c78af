// One rank's share of a plan: each of its parts with everything that carries it
// out (RankPart), and all of them together with which tensor is in which
// (RankParts). For the sources of this room. A rank has one part, or two
// (plan/plan.h), whose steps go on side by side.
//
//   RankPart own(part, world, engine, options, track, "");
//   own.finish_gradients();
//   own.begin_step(step, learning_rate);     // starts the first exchange
//   own.update_elements(step, {learning_rate, adamw_learning_rate});
//   own.finish_step(step, learning_rate);
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "canzona/plan/schedule/state_boxes.h"
#include "canzona/runtime/digest/rank_digest.h"
#include "canzona/runtime/rank.h"
#include "canzona/runtime/runtime.h"
#include "canzona/runtime/step/gradient_check.h"
#include "canzona/runtime/step/updates.h"
#include "canzona/runtime/zero/bucket_traffic.h"
#include "canzona/runtime/zero/module_traffic.h"

namespace canzona {

// A rank's weights and states as boxes of logical tensors, and access to their
// values. Internal to this folder.
std::vector<StateBox> states_of(const Rank& rank);

// Returns where the values of a box lie in the engine's memory: bf16 if the box
// is one of parameters and those are bf16, else fp32, restored in scratch of the
// caller's scope if masters are kept as remainders.
std::byte* memory_of(const Rank& rank, const StateBox& box);
// The same if that is host memory and fp32; else empty.
std::span<float> host_values(const Rank& rank, const StateBox& box);

// All values of a box, widened or rounded where parameters are bf16. Throws
// UsageError if the number of values is wrong.
void get_state(Rank& rank, const StateBox& box, std::span<float> values);
void set_state(Rank& rank, const StateBox& box, std::span<const float> values);

// Rounds the weights that this rank updates, if parameters are bf16.
void round_weights(Rank& rank);

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
  void update_elements(int64_t step, const ElementRates& rates);
  void finish_step(int64_t step, double learning_rate);
  // Publishes the weights that this rank updates as if they were new.
  void publish_weights();

  // Joins the threads after all posted work.
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
  std::unique_ptr<Scatterer> scatterer;  // where gradients are cut
};

class RankParts {
 public:
  // Throws UsageError if the ranks hold different plans.
  RankParts(const Plan& plan, Communicator& world, Engine& engine,
            const RuntimeOptions& options);

  // A tensor of the whole model, by its number in its part.
  struct LocalTensor {
    RankPart* part = nullptr;  // null: on other ranks
    int32_t number = 0;
  };
  const LocalTensor& find(int32_t tensor) const {
    return tensors_.at(static_cast<size_t>(tensor));
  }
  // Throws UsageError if the tensor is on other ranks.
  const LocalTensor& get(int32_t tensor) const;

  std::span<const std::unique_ptr<RankPart>> all() const { return parts_; }
  RankPart& first() const { return *parts_.front(); }
  Communicator& control() const { return first().rank.groups.control(); }
  void abort(const std::string& reason) const {
    first().rank.groups.abort(reason);
  }

  void begin_iteration(std::span<const int32_t> uses,
                       int64_t num_micro_batches);
  void wait_params(int32_t module) const;
  void release_params(int32_t module) const;
  void wait_all_params() const;
  void finish_gradients() const;
  void issue_step(const StepSettings& settings);
  // The outcome of the last step; waits for it if necessary.
  const StepOutcome& outcome();

  int64_t steps_done() {
    outcome();
    return steps_done_;
  }
  void take_over(int64_t steps_done);
  // The digest summed over all ranks, each element counted by one of them.
  std::string text_of(LogicalDigest digest) const;

  const Plan& plan;
  const Coordinates at;  // in the mesh

 private:
  void update(const StepSettings& settings, int64_t step) const;
  void check_gradients(const StepSettings& settings);
  // They must outlive the step.
  void set_row_factors(const StepSettings& settings) const;
  // Reduces numbers of the check over all ranks.
  void reduce(Reduction reduction, int64_t first, int64_t count,
              std::string_view label);
  bool is_ordered() const { return first().rank.compute != nullptr; }
  // True if a part has the module. Uses of a module that no part has are
  // announced to the first part, which reports the error.
  bool is_known(int32_t module) const;
  bool serves(const RankPart& part, int32_t module) const {
    return part.gathers(module) || (&part == &first() && !is_known(module));
  }

  std::unique_ptr<Communicator> of_experts_;  // with this ep coordinate
  std::vector<std::unique_ptr<RankPart>> parts_;
  std::vector<LocalTensor> tensors_;  // of the whole model
  Track* track_ = nullptr;            // of the calling thread
  GradientRuns gradients_;
  std::unique_ptr<GradientCheck> check_;  // the engines are the first part's
  StepOutcome outcome_;
  bool outcome_is_on_its_way_ = false;
  // Kept across steps to avoid allocation.
  std::vector<int32_t> uses_;  // those that a part serves
  int64_t steps_done_ = 0;
};

}  // namespace canzona
