// Compares plans: each choice of strategy, sizes of ZeRO and overlap is
// planned, executed and timed on the same ranks, with the same gradients.
//
//   StepBenchRequest request;
//   request.choices = {{"replicated"}, {"balanced"}};
//   request.plan = [&](const StepChoice& choice, const Link& link) { … };
//   request.run = on_threads(4, {});
//   StepBench bench = run_step_bench(request);
//
// If the time of forward and backward is to be chosen automatically, or links
// are to be scaled to a given share of compute, one choice is measured first,
// without links and overlap: of those with `balanced`, or of all, the one with
// zero3, otherwise the first that can be planned.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "canzona/measure/clock.h"
#include "canzona/measure/machine.h"
#include "canzona/measure/planned_bytes.h"
#include "canzona/measure/rank_runner.h"
#include "canzona/measure/step_trial.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/zero.h"

namespace canzona::measure {

struct StepChoice {
  std::string strategy;
  ZeroSizes sizes = {};
  Overlap overlap = Overlap::kBackground;
};

struct StepBenchRequest {
  std::vector<StepChoice> choices;
  // Throws UsageError if this choice is not possible.
  std::function<Plan(const StepChoice& choice, const Link& link)> plan;
  RankRunner run;
  std::string device = "cpu";
  // The number of ranks that share a GPU, and the memory that the communication
  // library takes for each.
  int ranks_per_gpu = 1;
  int64_t library_bytes = 0;
  // The overlap is that of each choice.
  StepTrialRequest trial = {};
  // The time of forward and backward; if empty, twice the step of the choice
  // measured first.
  std::optional<double> compute_seconds = {};
  Link link = {};
  // If above 0, the link's bandwidths, or 1 GB/s, are scaled so that the
  // busiest port is busy for this fraction of a rank's compute time in an
  // iteration, by the plan of the choice measured first.
  double comm_ratio = 0;
  Progress progress = [](const std::string&) {};
  // Phases so far.
  Phases* phases = nullptr;
};

// What the plan of a choice should take, and what it took.
struct PlanBench {
  StepChoice choice;
  std::string error;  // why it was not run; everything below is then empty
  std::optional<Plan> plan = {};
  // From the cost table, otherwise from measured rates (StepBench::speed).
  std::vector<RankCost> predicted = {};
  double predicted_mean() const;   // step of the slowest rank, mean over a
                                   // period
  double predicted_worst() const;  // its worst step
  // Of an iteration, by the simulation (sim/); 0 without iterations.
  double predicted_iteration_seconds = 0;
  double predicted_hidden_fraction = 0;
  StepTrial trial = {};
  PlannedBytes bytes_predicted = {};  // of a step
  int64_t memory_predicted_max = 0;
  // Planned, per iteration on a modelled link: of the busiest port.
  double link_seconds = 0;
  double speedup_over_replicated = 0;  // of mean steps; 0: replicated was not
                                       // run with these sizes and overlap
};

struct StepBench {
  std::vector<PlanBench> plans;
  double compute_seconds = 0;
  std::string measured_first;  // "balanced, zero3"; empty: not needed
  Link link = {};              // as used
  // The phases until the first step of the first run has ended, which is the
  // last phase.
  std::vector<Phase> beginning = {};
  // Bytes per second that a rank copies while all others do, too; measured only
  // if a link is modelled.
  double copy_bytes_per_second = 0;

  // Only for predictions of plans without a cost table, on a CPU.
  std::optional<MachineSpeed> speed = {};

  // Names two plans that must lead to the same parameters and states but do
  // not; empty if all agree.
  std::string disagreement(GradientKind gradients, DType wire) const;
};

// "balanced, zero3, background"; without sizes if the plan has none of its own.
std::string name_of(const StepChoice& choice, int32_t homes);

// Throws UsageError with all numbers if this many ranks, with these bytes each
// for the plan and for the library, do not fit into the free memory of a GPU.
void require_gpu_memory(const std::string& strategy, int num_ranks,
                        int64_t plan_bytes, int64_t library_bytes,
                        int64_t free_bytes);

// Throws UsageError, before anything is measured first, if nothing can be
// planned.
StepBench run_step_bench(const StepBenchRequest& request);

}  // namespace canzona::measure
