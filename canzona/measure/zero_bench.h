// Compares ZeRO sizes, each with every kind of overlap: planned, trained for
// some iterations on thread ranks, and timed. On a GPU the work of modules
// replaces training.
//
//   ZeroBenchRequest request;
//   request.settings = …; request.batches = &batches;
//   request.sizes = all_zero_sizes(8);
//   request.overlaps = {Overlap::kNone, Overlap::kBackground};
//   request.plan = [&](const ZeroSizes& sizes, const Link& link) { … };
//   ZeroBench bench = run_zero_bench(request);
//   bench.digests_agree();
//
// The cells are run in rounds, every other one in reverse order, so that a
// machine whose speed drifts favours none. Before that, without links, the
// machine's limits are measured and one cell is run (zero3 if it is among them,
// otherwise the first that can be planned); its compute times scale the links,
// if requested, and feed the predictions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "canzona/measure/iteration_trial.h"
#include "canzona/measure/planned_exchange.h"
#include "canzona/measure/rank_runner.h"
#include "canzona/measure/rule_step.h"
#include "canzona/measure/step_bench.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/zero.h"

namespace canzona {

// Predicts how long an iteration of a plan should take here, by the simulation
// (sim/), fed with measurements of one plan without links in the same run.
//
//   const MeasuredInputs inputs =
//       measured_inputs(settings, plan, trial, limits);
//   IterationOutlook outlook =
//       predict_iteration_of(settings, other_plan, Overlap::kMain, inputs);

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

struct ZeroBenchRequest {
  TrainSettings settings = {};
  const Batches* batches = nullptr;
  Mesh mesh = {};
  std::vector<ZeroSizes> sizes;
  std::vector<Overlap> overlaps;
  // Throws UsageError if these sizes are not possible.
  std::function<Plan(const ZeroSizes& sizes, const Link& link)> plan;
  // If set, ranks do not train: they run the work of modules on such engines
  // (iteration_trial.h), which share `device_bytes` (0: not known).
  std::function<std::unique_ptr<Engine>()> make_engine = {};
  bool split_gpu = false;  // each rank has an equal share of it
  ModuleCompute compute = {};
  int64_t device_bytes = 0;
  CommunicatorOptions communicator = {};  // ranks_per_node is used
  Link link = {};
  // If above 0, the link's bandwidths, or equal ones, are scaled so that the
  // busiest port of the cell measured first is busy for this many times a
  // rank's compute time.
  double comm_ratio = 0;
  IterationTrialRequest trial = {};
  int repeats = 5;
  // A limit on the total time: no round is begun that would exceed it if it
  // took as long as the last. 0: no limit. The first round always runs.
  double limit_seconds = 0;
  bool wants_limits = true;  // of the machine; unused with make_engine
  // Records the last cell in the first round.
  Trace* trace = nullptr;
  Progress progress = [](const std::string&) {};
};

struct ZeroCell {
  ZeroSizes sizes;
  Overlap overlap = Overlap::kBackground;
  std::string error;  // why it was not run; everything below is then empty
  std::optional<Plan> plan = {};
  PlannedBytes bytes = {};
  std::vector<IterationTrial> trials = {};  // one per round
  IterationOutlook predicted = {};
  int64_t memory_predicted_max = 0;
  int first_timed = 1;      // in each round
  double link_seconds = 0;  // planned, of the busiest port per iteration
  double edge_seconds = 0;  // of these, what nothing can hide
  double step_limit = 1;    // planned limit of step_hidden_fraction()

  const IterationTrial& first() const { return trials.front(); }
  // Over all timed iterations of all rounds, each on the slowest rank. The
  // spread is the maximum minus the minimum; mean and worst are over a refresh
  // period.
  double iteration_seconds() const;
  double iteration_spread() const;
  StepTimes iteration_times() const;
  // The median over rounds.
  double median(double IterationTrial::*member) const;
  // Over all rounds together. hidden_fraction() is 1 - time compute waited /
  // time links were busy; covered_fraction() is the share of link time during
  // which compute went on, which waiting for slower ranks does not reduce.
  double hidden_fraction() const;
  double covered_fraction() const;
  double step_hidden_fraction() const;
  double step_covered_fraction() const;

 private:
  double hidden(double IterationTrial::*waited,
                double IterationTrial::*busy) const;
};

struct ZeroBench {
  std::vector<ZeroCell> cells;
  MachineLimits limits;
  Link link = {};  // as used
  ZeroSizes measured_first;
  double compute_seconds = 0;  // of an iteration there
  MeasuredInputs inputs = {};

  // Names two cells that must lead to the same parameters and states but do
  // not; empty if all agree.
  std::string disagreement(const Mesh& mesh, int64_t num_micro_batches,
                           GradientWire wire) const;
};

// Throws UsageError, before anything is measured, if no cell can be planned.
ZeroBench run_zero_bench(const ZeroBenchRequest& request);

}  // namespace canzona
