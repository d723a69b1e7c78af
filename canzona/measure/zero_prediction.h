// Predicts how long an iteration of a plan should take here: the simulation
// (sim/), fed with what the same run has measured without links, of one plan.
//
//   const MeasuredInputs inputs = measured_inputs(settings, plan, trial,
//                                               limits);
//   IterationOutlook outlook =
//       predict_iteration_of(settings, other_plan, Overlap::kMain, inputs);
#pragma once

#include <vector>

#include "canzona/measure/iteration_trial.h"
#include "canzona/measure/shared_machine.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/zero.h"

namespace canzona {

// Rates of ranks that all compute at once.
struct MeasuredInputs {
  // By module, of one micro-batch.
  std::vector<double> forward_seconds;
  std::vector<double> backward_seconds;
  // The step, without waits: for every second of transforms that a plan
  // predicts, and for every byte of passes over memory.
  double step_per_transform = 0;
  double step_per_byte = 0;
  double step_seconds = 0;   // of the plan that was measured
  double other_seconds = 0;  // of an iteration, beside modules and step
  // The rate of a thread that packs, unpacks and adds; 0: free.
  double copy_bytes_per_second = 0;
  double slowdown = 0;  // 1: ranks have no core to spare for copies
  SharedMeetings meetings = {};
};

// `limits`, copies and meetings that are 0 are not known, and free. Ranks that
// have no core to spare compute less while they copy.
MeasuredInputs measured_inputs(const TrainSettings& settings, const Plan& plan,
                               const IterationTrial& trial,
                               const MachineLimits& limits);

struct IterationOutlook {
  double seconds = 0;
  double hidden_fraction = 0;
};

// On the links of the plan's options.
IterationOutlook predict_iteration_of(const TrainSettings& settings,
                                      const Plan& plan, Overlap overlap,
                                      const MeasuredInputs& inputs);

}  // namespace canzona
