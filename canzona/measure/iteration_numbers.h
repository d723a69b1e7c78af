// IterationNumbers are one rank's measurements of its iterations;
// trial_of_all() combines those of all ranks.
//
//   return trial_of_all(world, runtime, request, numbers, seconds,
//                       module_seconds);
//
// All ranks must call it at the same time, and get the same.
#pragma once

#include <vector>

#include "canzona/measure/iteration_trial.h"

namespace canzona {

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

}  // namespace canzona
