// Runs iterations of one rank on an asynchronous engine, timed by the engine.
// There is no model to run forward and backward on a GPU; the work of modules
// (engine_work.h) takes its place, around every call that a trainer makes to a
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
#pragma once

#include "canzona/measure/engine_work.h"
#include "canzona/measure/iteration_trial.h"

namespace canzona {

// Uses the runtime's options, rates, clipping and number of micro-batches from
// the settings; `compute` is that of one micro-batch. Throws UsageError if the
// runtime is not asynchronous, or if there are several pipeline stages.
IterationTrial run_device_trial(const TrainSettings& settings, const Plan& plan,
                                const ModuleCompute& compute,
                                Communicator& world, Engine& engine,
                                const IterationTrialRequest& request);

}  // namespace canzona
