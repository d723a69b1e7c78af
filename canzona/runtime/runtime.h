// Runs a plan: one rank's part of it.
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
// the transport or the timing. All ranks construct it at once, with the same
// plan, and call the same things in the same order; grad_ready may come in any
// order, but of a plan in parts in the same on all ranks where there is no
// overlap, or where calls only issue (RuntimeOptions::ordered). A tensor that
// is never announced counts as it lies in memory: zeros after zero_gradients()
// or, where gradients are cut, whenever it was not written to. Nothing else
// asks for zeros: gradients that are written replace those of the last step.
// If gradients are cut and a step has several micro-batches, every tensor of a
// module is announced in each. One thread at a time; plan, world and engine
// outlive it. After an error nothing but the destructor may be called, and the
// other ranks get PeerLost with the reason.
#pragma once

#include <chrono>
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
#include "canzona/runtime/groups.h"
#include "canzona/runtime/step/rule_set.h"
#include "canzona/trace/trace.h"

namespace canzona {

// The numbers in which gradients travel between data-parallel ranks.
enum class GradientWire { kFp32, kBf16 };
constexpr int64_t bytes_of(GradientWire wire) {
  return wire == GradientWire::kBf16 ? 2 : 4;
}

struct RuntimeOptions {
  RuleOptions adamw = {};  // of what is no matrix, whatever the plan's rule
  std::vector<ParameterGroup> groups = {};
  GradientWire wire = GradientWire::kFp32;
  bool pipelined = true;  // false: every exchange is waited for at once
  Overlap overlap = Overlap::kBackground;
  // Copies and adds memory of the engine. Null: as the engine's own memory
  // wants it; tests put others here.
  const WireOps* wire_ops = nullptr;
  // If the engine works later than it is told to, and these ranks can order
  // their collectives (Communicator::can_order), calls only issue, and nobody
  // waits. false: every collective waits for the engine, and the caller for it.
  bool ordered = true;
  // Then the engine's waits are measured, by marks in its work, for
  // RuntimeTimes.
  bool timed_waits = false;
  // Outlives the runtime. Where calls only issue, spans are those of the
  // device, and complete when the runtime has ended.
  Trace* trace = nullptr;
};

struct StepSettings {
  double learning_rate = 0;         // of the matrices, whatever the rule
  double adamw_learning_rate = -1;  // of all else; below 0: the same
  // Sums over data-parallel ranks are multiplied by it: 1 / how many gradients
  // were added.
  double gradient_factor = 1;
  double clip_norm = 0;  // 0: no clipping
  bool wants_norm = false;
};

struct StepOutcome {
  bool skipped = false;
  // After a skipped step: the tensor whose gradient was not finite, and the
  // rank that had it; -1 if every rank's was finite and only their sum is not.
  std::string nonfinite_tensor = {};
  int nonfinite_rank = -1;
  double gradient_norm = 0;  // before clipping; 0 if not asked for
  // Last gradient reduced → last parameter applied; of this thread alone where
  // the engine works later than it is told to.
  double seconds = 0;
};

// Seconds this rank's compute has waited, and its links were busy, so far.
// If calls only issue, these are the waits of the engine, as far as it has
// come, and only if RuntimeOptions::timed_waits asks for them; else this
// thread's.
struct RuntimeTimes {
  double waited_for_gradients = 0;
  double waited_in_step = 0;  // for gathers and scatters of matrices
  double waited_for_parameters = 0;
  // With modelled links, the time in which at least one of this rank's ports
  // was busy, whoever used it. Elsewhere the time of the runtime's own
  // operations, added up over threads.
  double links_busy = 0;
  bool links_modelled = false;
  // With gathers and scatters of matrices alone; those of a plan's parts are
  // added up.
  double exchange_busy = 0;
  // The part of these two in which compute waited; only where links are
  // modelled and collectives are not only issued.
  double links_exposed = 0;
  double exchange_exposed = 0;
  double waited() const {
    return waited_for_gradients + waited_in_step + waited_for_parameters;
  }
};

// One box of a logical tensor that a rank keeps.
struct RankState : StateBox {
  size_t part = 0;  // number of the rank's part of the plan
  // Its numbers in fp32 where they lie, if that is memory of this process and
  // they are kept in fp32; else empty. As long as the runtime lives.
  std::span<float> values = {};
};

class Runtime {
 public:
  // UsageError if the ranks hold different plans, or the plan asks for what a
  // runtime cannot do.
  Runtime(const Plan& plan, Communicator& world, Engine& engine,
          const RuntimeOptions& options);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Plan& plan() const;
  const Coordinates& coordinates() const;  // in the mesh
  // True if calls only issue (RuntimeOptions::ordered).
  bool only_issues() const;

  // The number of the plan's tensor of this name, by which all calls below know
  // it. UsageError, with the nearest name, if the plan has none.
  int32_t tensor(std::string_view name) const;
  // True if this rank stores a shard of the tensor.
  bool holds(int32_t tensor) const;
  int64_t shard_elements(int32_t tensor) const;

  // The shard in the engine's memory; bf16 numbers are the upper halves of
  // fp32. If the plan cuts parameters, it is valid between wait_params and
  // release_params alone. UsageError if the plan keeps parameters in the other
  // of these two types.
  std::span<float> parameter(int32_t tensor);
  std::span<uint16_t> bf16_parameter(int32_t tensor);
  // To be written, or added to, until it is announced as ready. If the
  // plan cuts gradients it is zeros at the first call of a micro-batch, which
  // waits for room. That of a frozen tensor may be written and is forgotten.
  std::span<float> gradient(int32_t tensor);

  // Between memory of this process and the shard. Setting rounds the copy that
  // forward uses and keeps the master weights.
  void set_parameter(int32_t tensor, std::span<const float> shard);
  // The same from memory of the engine, which holds the whole shard. Other
  // ranks may gather it after the engine's synchronize().
  void set_parameter_there(int32_t tensor, const float* shard);

  // The runs of a tensor's shard whose parameters this rank keeps, in order:
  // all of it as one, unless the plan cuts parameters. Getting widens them.
  std::vector<Extent> kept_runs(int32_t tensor) const;
  // True if these runs are this rank's to give when each is wanted once: the
  // first of the ranks that keep the same ones gives them.
  bool keeps_first(int32_t tensor) const;
  void get_kept(int32_t tensor, std::span<float> values);
  // Requires this rank to store the whole shard.
  void get_parameter(int32_t tensor, std::span<float> shard);

  // The modules that will be waited for until the next call, in order, and how
  // often each gradient is announced before it is complete. Without it: once.
  void begin_iteration(std::span<const int32_t> uses,
                       int64_t num_micro_batches);

  // This micro-batch's part of the gradient is complete on this rank.
  void grad_ready(int32_t tensor);
  // Until all gradients are reduced; step() does so, too.
  void wait_gradients();
  StepOutcome step(const StepSettings& settings);
  // The same in two calls, for engines that work later than they are told to:
  // the first only issues, and the second waits until gradients were looked at.
  // Nobody needs to ask; the next step does. Without such an engine the step is
  // over when it is issued.
  void issue_step(const StepSettings& settings);
  StepOutcome outcome();  // of the last step
  void zero_gradients();

  // Until the parameters of a module (plan/schedule/modules.h), or of all, are
  // those of the last step.
  void wait_params(int32_t module);
  // After each use of a module that was waited for.
  void release_params(int32_t module);
  void wait_all_params();
  // While held, a step's all-gathers begin with the first wait after it instead
  // of in it: for whoever measures the step by itself. All ranks alike.
  void hold_params(bool held);

  // Weights and states by name, for whoever saves them or takes them over: all
  // boxes that this rank keeps, those of a tensor in order. Between steps. The
  // numbers of a box are fp32, row-major; frozen weights of a bf16 plan are
  // rounded when they are set.
  void for_each_state(const std::function<void(const RankState&)>& use);
  void get_state(const RankState& state, std::span<float> values);
  void set_state(const RankState& state, std::span<const float> values);
  // After all boxes were set on all ranks, which all call it: so many steps are
  // done, and the weights go to every rank that uses them, as after a step.
  void take_over(int64_t steps_done);

  int64_t steps_done() const;
  RuntimeTimes times() const;
  Groups::Sent sent();        // bytes, since construction
  Groups::Sent sent_slow();   // of these, between nodes
  RankMemory memory() const;  // reserved
  // The most that pools of modules have held at once.
  struct PoolUse {
    int64_t gather_slots = 0;
    int64_t scatter_slots = 0;
    int64_t bytes = 0;      // staging included
    int64_t slots_now = 0;  // in use at this moment, of both
  };
  PoolUse pool_use() const;

  // The digest of all ranks' parameters and states, by logical name and
  // position; the same on every rank, for every mesh and layout. InternalError
  // if ranks that should hold the same parameters do not. All ranks call it.
  std::string parameter_digest();
  std::string state_digest();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace canzona
