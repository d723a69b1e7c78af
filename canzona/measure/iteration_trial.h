// Times real iterations of training, on one rank.
//
//   run_ranks(plan.mesh.world(), [&](Communicator& world) {
//     const auto engine = make_cpu_engine();
//     IterationTrial trial = run_iteration_trial(
//         settings, plan, batches, world, *engine, {.steps = 3});
//   });
//
// An iteration is what `canzona train` does in a step, without records: forward
// and backward of all micro-batches, the optimizer's step, and the
// communication that is not hidden. All ranks must call it at the same time
// with the same arguments, and get the same result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/data/batches.h"
#include "canzona/linalg/engine.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/runtime/runtime.h"
#include "canzona/train/trainer.h"

namespace canzona {

// Work that stands in for a model's forward and backward.

// Stands in for a model's forward and backward for a given time: the rank
// sleeps, as a host does while its accelerator computes, and leaves its core to
// the communicating threads.
//
//   TimedWork work(plan, place, 1.5);   // seconds of an iteration
//   work.begin();
//   work.forward(module);
//   work.backward(module);
//
// A third of the time is forward. Modules share it in proportion to their
// elements; embedding lookups take none. If a sleep lasts too long, the next
// one is shortened by that.
class TimedWork {
 public:
  // Uses the modules of the rank's stage.
  TimedWork(const Plan& plan, const Coordinates& at, double seconds);

  // Begins an iteration, which lasts its full time whatever the last one did.
  void begin() { ahead_ = 0; }
  void forward(int32_t module) { work(share(module) / 3); }
  void backward(int32_t module) { work(share(module) * 2 / 3); }
  // Returns the module's share of an iteration.
  double share(int32_t module) const {
    return shares_[static_cast<size_t>(module)];
  }

 private:
  void work(double seconds);

  std::vector<double> shares_;  // seconds, by module
  double ahead_ = 0;            // slept already
};

// Stands in for forward and backward on an asynchronous engine: matrix products
// of the modules' own shapes, or idling for a given time.
//
//   EngineWork work(runtime, engine, {.tokens = 4096});
//   runtime.wait_params(module);
//   work.forward(module);           // only issued
//   work.backward(module);          // writes the module's gradients
//
// With products, each matrix W of a module is multiplied in bf16 with this many
// tokens: Y = X·Wᵀ forward, dX = dY·W and dW = dYᵀ·X backward. W, X and dY are
// constant; dW goes to the runtime's gradient. Embedding lookups take none, and
// an expert gets its share of the tokens. With a time, modules share it as in
// TimedWork.

struct ModuleCompute {
  int64_t tokens = 0;  // above 0: products with this many
  double seconds = 0;  // otherwise: forward and backward of all modules
};

class EngineWork {
 public:
  // Runtime and engine must outlive it.
  EngineWork(Runtime& runtime, Engine& engine, const ModuleCompute& compute);

  void forward(int32_t module);
  // Call it between wait_params() and grad_ready().
  void backward(int32_t module);

 private:
  struct Weight {
    int32_t tensor = 0;
    int64_t rows = 0, cols = 0;  // of the shard: out, in
    int64_t tokens = 0;
  };

  void add_weight(int32_t tensor, const ModuleCompute& compute);
  void make_numbers();
  Matrices activations(int64_t tokens, int64_t width) const;
  Matrices result(int64_t rows, int64_t cols) const;
  Matrices weight(const Weight& of) const;

  Runtime& runtime_;
  Engine& engine_;
  TimedWork timed_;  // for the modules' shares
  const bool multiplies_;
  std::vector<std::vector<Weight>> weights_;  // by module
  EngineMemory memory_;
  Run activations_{}, weight_{}, result_{};
};

// Returns the same options, with waits timed on the engine too.
inline RuntimeOptions with_timed_waits(RuntimeOptions options) {
  options.timed_waits = true;
  return options;
}

// Gives the rank's shard of a tensor its initial numbers, on the engine.
void set_first_parameter(Runtime& runtime, Engine& engine, int32_t tensor);

struct IterationTrialRequest {
  int warmup = 1;  // untimed iterations
  int steps = 3;   // timed iterations
  bool wants_digests = true;
  bool wants_modules = true;  // times per module, if that is extra work
};

struct IterationTrial {
  double iteration_seconds = 0;  // mean over iterations, slowest rank
  std::vector<double> seconds;   // of each, the slowest rank
  // Times of an iteration, mean over ranks: how long the computing thread was
  // not waiting and was waiting; how long links were busy (RuntimeTimes), and
  // how long it waited meanwhile.
  double compute_seconds = 0;
  double waited_seconds = 0;
  double busy_seconds = 0;
  double exposed_seconds = 0;
  // From the last gradient to the end of the step: the compute time of the
  // slowest rank; then waiting and link time of the gathers and scatters of
  // matrices alone.
  double step_seconds = 0;
  double step_waited_seconds = 0;
  double step_busy_seconds = 0;
  double step_exposed_seconds = 0;
  // By module and micro-batch, without waiting; median over ranks.
  std::vector<double> forward_seconds;
  std::vector<double> backward_seconds;
  // The bytes of an iteration, by rank.
  std::vector<int64_t> bytes_sent;
  std::vector<int64_t> slow_bytes_sent;
  std::vector<int64_t> memory_bytes;  // reserved by the runtime, by rank
  // The maximum over all ranks.
  Runtime::PoolUse pools = {};
  std::string digest;  // of parameters, after the last iteration
  std::string state_digest;
  double loss = 0;  // of the last iteration, mean over ranks
};

IterationTrial run_iteration_trial(const TrainSettings& settings,
                                   const Plan& plan, const Batches& batches,
                                   Communicator& world, Engine& engine,
                                   const IterationTrialRequest& request);

// IterationNumbers are one rank's measurements of its iterations;
// trial_of_all() combines those of all ranks.
//
//   return trial_of_all(world, runtime, request, numbers, seconds,
//                       module_seconds);
//
// All ranks must call it at the same time, and get the same.

// The measurements of one rank over all timed iterations, in the same form on
// all ranks.
struct IterationNumbers {
  double total = 0;
  double waited = 0, busy = 0, exposed = 0;
  double step = 0, step_waited = 0, step_busy = 0, step_exposed = 0;
  double loss = 0;
  int64_t bytes = 0, slow_bytes = 0;  // of all iterations
  int64_t memory = 0;
  Runtime::PoolUse pools;
};

// `seconds` is by iteration; `module_seconds` is forward and backward, module
// by module.
IterationTrial trial_of_all(Communicator& world, Runtime& runtime,
                            const IterationTrialRequest& request,
                            const IterationNumbers& numbers,
                            const std::vector<double>& seconds,
                            const std::vector<double>& module_seconds);

// Runs iterations of one rank on an asynchronous engine, timed by the engine.
// There is no model to run forward and backward on a GPU; the work of modules
// takes its place, around every call that a trainer makes
// to a runtime.
//
//   run_ranks(plan.mesh.world(), [&](Communicator& world) {
//     const auto engine = make_cuda_engine();
//     IterationTrial trial = run_device_trial(
//         settings, plan, {.tokens = 4096}, world, *engine, {.steps = 3});
//   });
//
// The host does not wait between the first timed iteration and the last. An
// iteration lies between the ends of two steps in the engine's work, and
// waiting times are the engine's. All ranks must call it at the same time with
// the same arguments, and get the same result.

// Uses the runtime's options, rates, clipping and number of micro-batches from
// the settings; `compute` is that of one micro-batch. Throws UsageError if the
// runtime is not asynchronous, or if there are several pipeline stages.
IterationTrial run_device_trial(const TrainSettings& settings, const Plan& plan,
                                const ModuleCompute& compute,
                                Communicator& world, Engine& engine,
                                const IterationTrialRequest& request);

}  // namespace canzona
