#include "canzona/trials/zero_prediction.h"

#include <algorithm>
#include <numeric>

#include "canzona/sim/plan_iteration.h"

namespace canzona {

MeasuredInputs inputs_of(const IterationTrial& trial,
                         int64_t num_micro_batches) {
  const auto sum = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
  };
  MeasuredInputs inputs;
  inputs.forward_seconds = trial.forward_seconds;
  inputs.backward_seconds = trial.backward_seconds;
  inputs.step_seconds = trial.step_seconds;
  const double passes =
      sum(trial.forward_seconds) + sum(trial.backward_seconds);
  inputs.other_seconds =
      std::max(0.0, trial.compute_seconds - trial.step_seconds -
                        static_cast<double>(num_micro_batches) * passes);
  return inputs;
}

IterationOutlook predict_cell(const TrainSettings& settings, const Plan& plan,
                              Overlap overlap, const MeasuredInputs& inputs) {
  Workload workload;
  for (size_t m = 0; m < inputs.forward_seconds.size(); ++m)
    workload.measured.push_back(
        {inputs.forward_seconds[m], inputs.backward_seconds[m]});
  workload.num_micro_batches =
      settings.global_batch /
      (settings.decoder.micro_batch * plan.mesh.homes());
  workload.overlap = overlap;
  workload.copy_bytes_per_second = inputs.copy_bytes_per_second;
  if (plan.mesh.tp > 1) {
    workload.hidden = settings.decoder.architecture.hidden;
    workload.compute.tokens = settings.decoder.tokens();
    workload.compute.recompute = settings.decoder.recompute;
  }
  IterationOutlook outlook;
  double seconds = 0;
  for (int32_t stage = 0; stage < plan.mesh.pp; ++stage) {
    IterationWork work = plan_iteration(plan, workload, stage);
    work.step_seconds = inputs.step_seconds + inputs.other_seconds;
    const IterationTime time = simulate_iteration(work);
    if (time.seconds <= seconds) continue;
    seconds = time.seconds;
    outlook = {time.seconds, time.hidden_fraction(), time.edge_seconds};
  }
  return outlook;
}

}  // namespace canzona
