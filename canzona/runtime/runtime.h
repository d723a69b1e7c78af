// Runs one rank's part of a plan.
//
//   Runtime runtime(plan, world, engine, {});
//   for (tensor …) runtime.set_parameter(tensor, initial values of the shard);
//   while (training) {
//     for (module …) { runtime.wait_params(module); forward(module); }
//     for (module … backwards) {
//       backward(module);                     // adds into runtime.gradient(t)
//       for (tensor …) runtime.grad_ready(tensor);
//     }
//     StepOutcome outcome = runtime.step({.learning_rate = 1e-3});
//     runtime.zero_gradients();
//   }
//
// Given the ranks' gradients, parameters and states do not depend on the plan,
// the transport or the timing. All ranks construct their Runtime together, with
// the same plan, and make the same calls in the same order. grad_ready may be
// called in any order, except that all ranks must use the same one if the plan
// has several parts and there is no overlap or calls only issue work
// (RuntimeOptions::ordered). A tensor that is never announced contributes
// whatever its memory holds: zeros after zero_gradients() or, where gradients
// are cut, whenever it was not written to. Nothing else requires zeros: a
// gradient may simply overwrite that of the last step. If gradients are cut and
// a step has several micro-batches, every tensor of a module is announced in
// each. One thread at a time; plan, world and engine must outlive the Runtime.
// After an error only the destructor may be called, and the other ranks get
// PeerLost with the reason.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/comm/communicator.h"
#include "canzona/linalg/engine.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/state_boxes.h"
#include "canzona/runtime/options.h"

namespace canzona {

// One box of a logical tensor that a rank stores.
struct RankState : StateBox {
  size_t part = 0;  // index of the rank's part of the plan
  // Its values in place, if they are fp32 in host memory; else empty. Valid as
  // long as the runtime.
  std::span<float> values = {};
};

class Runtime {
 public:
  // Throws UsageError if the ranks hold different plans, or the plan requires
  // something that the runtime does not support.
  Runtime(const Plan& plan, Communicator& world, Engine& engine,
          const RuntimeOptions& options);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Plan& plan() const;
  const Coordinates& coordinates() const;  // in the mesh
  // True if calls only issue work (RuntimeOptions::ordered).
  bool only_issues() const;

  // The plan's number of the tensor with this name, used by all calls below.
  // Throws UsageError, with the nearest name, if the plan has none.
  int32_t tensor(std::string_view name) const;
  // True if this rank stores a shard of the tensor.
  bool holds(int32_t tensor) const;
  int64_t shard_elements(int32_t tensor) const;

  // The shard in the engine's memory; bf16 numbers are the upper halves of
  // fp32. If the plan cuts parameters, valid only between wait_params and
  // release_params. Throws UsageError if the plan stores parameters in the
  // other of these two types.
  std::span<float> parameter(int32_t tensor);
  std::span<uint16_t> bf16_parameter(int32_t tensor);
  // May be written, or added to, until it is announced as ready. If the plan
  // cuts gradients, it is zeroed at the first call of a micro-batch, which
  // waits for a free slot. The gradient of a frozen tensor may be written and
  // is ignored.
  std::span<float> gradient(int32_t tensor);

  // Copies from host memory into the shard: into the copy that forward uses,
  // rounded if that is bf16, and into the master weights.
  void set_parameter(int32_t tensor, std::span<const float> shard);
  // The same from memory of the engine that holds the whole shard. Other ranks
  // may gather it after the engine's synchronize().
  void set_parameter_there(int32_t tensor, const float* shard);

  // The runs of a tensor's shard whose parameters this rank stores, in order:
  // one run with all of it, unless the plan cuts parameters. get_kept widens
  // them to fp32.
  std::vector<Extent> kept_runs(int32_t tensor) const;
  // True on exactly one of the ranks that store the same runs: the first of
  // them, which supplies them when each is wanted once.
  bool keeps_first(int32_t tensor) const;
  void get_kept(int32_t tensor, std::span<float> values);
  // Requires this rank to store the whole shard.
  void get_parameter(int32_t tensor, std::span<float> shard);

  // Announces the modules that will be waited for until the next call, in
  // order, and how often each gradient is announced before it is complete.
  // Without this call: once.
  void begin_iteration(std::span<const int32_t> uses,
                       int64_t num_micro_batches);

  // Announces that this micro-batch's part of the gradient is complete here.
  void grad_ready(int32_t tensor);
  // Waits until all gradients are reduced; step() does so too.
  void wait_gradients();
  StepOutcome step(const StepSettings& settings);
  // step() in two calls, for asynchronous engines: issue_step only issues the
  // work, and outcome waits until the gradients have been checked. Calling
  // outcome is optional, since the next step does. With a synchronous engine
  // the step is complete when issue_step returns.
  void issue_step(const StepSettings& settings);
  StepOutcome outcome();  // of the last step
  void zero_gradients();

  // Waits until the parameters of a module (plan/schedule/modules.h), or of all
  // modules, are those of the last step.
  void wait_params(int32_t module);
  // Must be called after each use of a module that was waited for.
  void release_params(int32_t module);
  void wait_all_params();
  // While held, a step's all-gathers start with the first wait after the step
  // rather than during it, so that the step can be timed by itself. Must be set
  // alike on all ranks.
  void hold_params(bool held);

  // Weights and states by name, for saving and restoring: all boxes that this
  // rank stores, those of a tensor in order. Only between steps. The values of
  // a box are fp32, row-major; frozen weights of a bf16 plan are rounded when
  // they are set.
  void for_each_state(const std::function<void(const RankState&)>& use);
  void get_state(const RankState& state, std::span<float> values);
  void set_state(const RankState& state, std::span<const float> values);
  // Called by all ranks after all boxes were set: sets the number of steps done
  // and sends the weights to every rank that uses them, as after a step.
  void take_over(int64_t steps_done);

  int64_t steps_done() const;
  RuntimeTimes times() const;
  Groups::Sent sent();        // bytes, since construction
  Groups::Sent sent_slow();   // the part of it between nodes
  RankMemory memory() const;  // reserved
  // The peak use of the pools of modules.
  struct PoolUse {
    int64_t gather_slots = 0;
    int64_t scatter_slots = 0;
    int64_t bytes = 0;      // staging included
    int64_t slots_now = 0;  // currently in use, of both kinds
  };
  PoolUse pool_use() const;

  // The digest of all ranks' parameters or states, by logical name and
  // position; the same on every rank, for every mesh and layout. Throws
  // InternalError if ranks that should hold the same parameters do not. All
  // ranks must call it.
  std::string parameter_digest();
  std::string state_digest();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace canzona
