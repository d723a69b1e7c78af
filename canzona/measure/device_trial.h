// Iterations on an engine that works later than it is told to, timed by it: one
// rank's part. There is no forward and backward of a model on a GPU; the work
// of modules (engine_work.h) stands for it, around every call that a trainer
// makes of a runtime.
//
//   run_ranks(plan.mesh.world(), [&](Communicator& world) {
//     const auto engine = make_cuda_engine();
//     IterationTrial trial = run_device_trial(
//         settings, plan, {.tokens = 4096}, world, *engine, {.steps = 3});
//   });
//
// Nobody waits between the first timed iteration and the last. An iteration is
// what lies between the ends of two steps in the engine's work; what compute
// waited is what the engine did. All ranks call it at once, with the same
// things, and get the same result.
#pragma once

#include "canzona/measure/engine_work.h"
#include "canzona/measure/iteration_trial.h"

namespace canzona {

// Takes from the settings the runtime's options, rates, clipping and the number
// of micro-batches; `compute` is that of one micro-batch. UsageError if the
// runtime does not only issue, or if there are several pipeline stages.
IterationTrial run_device_trial(const TrainSettings& settings, const Plan& plan,
                                const ModuleCompute& compute,
                                Communicator& world, Engine& engine,
                                const IterationTrialRequest& request);

}  // namespace canzona
