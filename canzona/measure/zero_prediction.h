// Predicts how long an iteration of a plan should take here, by the simulation
// (sim/), fed with measurements of one plan without links in the same run.
//
//   const MeasuredInputs inputs =
//       measured_inputs(settings, plan, trial, limits);
//   IterationOutlook outlook =
//       predict_iteration_of(settings, other_plan, Overlap::kMain, inputs);
#pragma once

#include <vector>

#include "canzona/measure/iteration_trial.h"
#include "canzona/measure/shared_machine.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/zero.h"

namespace canzona {

// Rates of ranks that all compute at the same time.
struct MeasuredInputs {
  // By module, per micro-batch.
  std::vector<double> forward_seconds;
  std::vector<double> backward_seconds;
  // Compute time of the step: per second of transforms that a plan predicts,
  // and per byte of passes over memory.
  double step_per_transform = 0;
  double step_per_byte = 0;
  double step_seconds = 0;   // of the measured plan
  double other_seconds = 0;  // per iteration, beside modules and step
  // The rate of a thread that packs, unpacks and adds; 0: these are free.
  double copy_bytes_per_second = 0;
  double slowdown = 0;  // 1: ranks have no spare core for copies
  SharedMeetings meetings = {};
};

// Members of `limits` that are 0 are unknown and count as free. Ranks without a
// spare core compute less while they copy.
MeasuredInputs measured_inputs(const TrainSettings& settings, const Plan& plan,
                               const IterationTrial& trial,
                               const MachineLimits& limits);

struct IterationOutlook {
  double seconds = 0;
  double hidden_fraction = 0;
};

// Uses the links of the plan's options.
IterationOutlook predict_iteration_of(const TrainSettings& settings,
                                      const Plan& plan, Overlap overlap,
                                      const MeasuredInputs& inputs);

}  // namespace canzona
