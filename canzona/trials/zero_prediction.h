// How long an iteration of a plan should take here: the simulation (sim/), fed
// with what the same run has measured without links.
//
//   const MeasuredInputs inputs = inputs_of(trial);
//   IterationOutlook outlook =
//       predict_cell(settings, plan, link, Overlap::kMain, inputs);
#pragma once

#include <vector>

#include "canzona/comm/thread/link_model.h"
#include "canzona/plan/plan.h"
#include "canzona/trials/iteration_trial.h"

namespace canzona {

// Of ranks that all compute at once.
struct MeasuredInputs {
  // By module, of one micro-batch.
  std::vector<double> forward_seconds;
  std::vector<double> backward_seconds;
  double step_seconds = 0;  // of the optimizer, without waits
  // What an iteration computes beside modules and step.
  double other_seconds = 0;
  double copy_bytes_per_second = 0;
};

MeasuredInputs inputs_of(const IterationTrial& trial,
                         int64_t num_micro_batches);

struct IterationOutlook {
  double seconds = 0;
  double hidden_fraction = 0;
  double edge_seconds = 0;  // that nothing can hide
};

// `link` is that of the plan's options, too.
IterationOutlook predict_cell(const TrainSettings& settings, const Plan& plan,
                              Overlap overlap, const MeasuredInputs& inputs);

}  // namespace canzona
