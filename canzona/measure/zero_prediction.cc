#include "canzona/measure/zero_prediction.h"

#include <algorithm>
#include <numeric>
#include <thread>

#include "canzona/measure/planned_exchange.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/sim/plan_iteration.h"

namespace canzona {
namespace {

// A copy reads and writes.
constexpr double kPassesOfACopy = 2;

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// The work of the slowest rank of a plan in a step.
struct StepWork {
  double transform_seconds = 0;
  double bytes = 0;
};

StepWork step_work(const Plan& plan) {
  StepWork work;
  for (const RankCost& rank : predict(plan)) {
    work.transform_seconds =
        std::max(work.transform_seconds, rank.transform_seconds_mean);
    work.bytes = std::max(work.bytes, rank.element_wise_bytes);
  }
  return work;
}

void fit_step(const Plan& plan, double copy_rate, MeasuredInputs& inputs) {
  const StepWork work = step_work(plan);
  const double measured = inputs.step_seconds;
  if (work.transform_seconds == 0) {
    inputs.step_per_byte = work.bytes > 0 ? measured / work.bytes : 0;
    return;
  }
  if (copy_rate > 0 && work.bytes > 0)
    inputs.step_per_byte =
        std::min(1 / (kPassesOfACopy * copy_rate), measured / work.bytes);
  inputs.step_per_transform =
      (measured - inputs.step_per_byte * work.bytes) / work.transform_seconds;
}

// Returns compute, or the pipeline of rounds if matrices are exchanged.
double step_seconds(const Plan& plan, Overlap overlap,
                    const MeasuredInputs& inputs) {
  const StepWork work = step_work(plan);
  const double elements = inputs.step_per_byte * work.bytes;
  const double compute =
      inputs.step_per_transform * work.transform_seconds + elements;
  const bool pipelined = overlap != Overlap::kNone;
  const SharedMeetings& meetings = inputs.meetings;
  return std::max(
      compute,
      planned_exchange(plan).step_seconds(
          {.per_transform = inputs.step_per_transform,
           .elements = elements,
           .per_operation = pipelined ? meetings.beside_compute : meetings.idle,
           .pipelined = pipelined}));
}

Workload workload_of(const TrainSettings& settings, const Plan& plan,
                     Overlap overlap, const MeasuredInputs& inputs) {
  Workload workload;
  for (size_t m = 0; m < inputs.forward_seconds.size(); ++m)
    workload.measured.push_back(
        {inputs.forward_seconds[m], inputs.backward_seconds[m]});
  workload.num_micro_batches = settings.micro_batches(plan.mesh);
  workload.overlap = overlap;
  workload.copy_bytes_per_second = inputs.copy_bytes_per_second;
  workload.slowdown = inputs.slowdown;
  workload.meetings = {inputs.meetings.idle, inputs.meetings.beside_compute};
  if (plan.mesh.tp > 1) {
    workload.hidden = settings.decoder.architecture.hidden;
    workload.compute.tokens = settings.decoder.tokens();
    workload.compute.recompute = settings.decoder.recompute;
  }
  return workload;
}

}  // namespace

MeasuredInputs measured_inputs(const TrainSettings& settings, const Plan& plan,
                               const IterationTrial& trial,
                               const MachineLimits& limits) {
  const double copy_rate = limits.copies.together;
  MeasuredInputs inputs;
  inputs.forward_seconds = trial.forward_seconds;
  inputs.backward_seconds = trial.backward_seconds;
  inputs.step_seconds = trial.step_seconds;
  fit_step(plan, copy_rate, inputs);
  const double passes =
      static_cast<double>(settings.micro_batches(plan.mesh)) *
      (sum_of(trial.forward_seconds) + sum_of(trial.backward_seconds)) /
      plan.mesh.pp;
  inputs.other_seconds =
      std::max(0.0, trial.compute_seconds - trial.step_seconds - passes);
  inputs.copy_bytes_per_second = copy_rate;
  inputs.meetings = limits.meetings;
  const auto cores = static_cast<int32_t>(std::thread::hardware_concurrency());
  inputs.slowdown = plan.mesh.world() >= cores ? 1 : 0;
  return inputs;
}

IterationOutlook predict_iteration_of(const TrainSettings& settings,
                                      const Plan& plan, Overlap overlap,
                                      const MeasuredInputs& inputs) {
  const Workload workload = workload_of(settings, plan, overlap, inputs);
  IterationOutlook outlook;
  for (int32_t stage = 0; stage < plan.mesh.pp; ++stage) {
    IterationWork work = plan_iteration(plan, workload, stage);
    work.step_seconds =
        step_seconds(plan, overlap, inputs) + inputs.other_seconds;
    const IterationTime time = simulate_iteration(work);
    if (time.seconds > outlook.seconds)
      outlook = {time.seconds, time.hidden_fraction()};
  }
  return outlook;
}

}  // namespace canzona
