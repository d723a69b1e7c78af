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
#include "canzona/measure/model_work.h"
#include "canzona/train/trainer.h"

namespace canzona {

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
// (model_work.h) takes its place, around every call that a trainer makes to a
// runtime.
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
