// Sizes of ZeRO side by side, each with every kind of overlap: planned, trained
// for some iterations on thread ranks, and timed. On a GPU the work of modules
// takes the place of training.
//
//   ZeroBenchRequest request;
//   request.settings = …; request.batches = &batches;
//   request.sizes = all_zero_sizes(8);
//   request.overlaps = {Overlap::kNone, Overlap::kBackground};
//   request.plan = [&](const ZeroSizes& sizes, const Link& link) { … };
//   ZeroBench bench = run_zero_bench(request);
//   bench.digests_agree();
//
// The cells are run in rounds, every other one backwards, so that a machine
// that changes its pace favours none. Before them, without links: what the
// machine can do, and one cell (zero3 if it is among them, else the first),
// whose compute times scale the links where they are to be scaled, and feed the
// predictions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "canzona/measure/device_trial.h"
#include "canzona/measure/planned_bytes.h"
#include "canzona/measure/rank_runner.h"
#include "canzona/measure/shared_machine.h"
#include "canzona/measure/step_times.h"
#include "canzona/measure/transform.h"
#include "canzona/measure/zero_prediction.h"

namespace canzona {

struct ZeroBenchRequest {
  TrainSettings settings = {};
  const Batches* batches = nullptr;
  Mesh mesh = {};
  std::vector<ZeroSizes> sizes;
  std::vector<Overlap> overlaps;
  // UsageError: these sizes cannot be.
  std::function<Plan(const ZeroSizes& sizes, const Link& link)> plan;
  // If it is set, ranks do not train: they run the work of modules on such
  // engines (device_trial.h), which share `device_bytes` (0: not known).
  std::function<std::unique_ptr<Engine>()> make_engine = {};
  ModuleCompute compute = {};
  int64_t device_bytes = 0;
  CommunicatorOptions communicator = {};  // its ranks_per_node counts
  Link link = {};
  // Above 0: the link's bandwidths, or equal ones, are scaled so that the
  // busiest port of the cell that is measured first is busy for so many times
  // what a rank computes.
  double comm_ratio = 0;
  IterationTrialRequest trial = {};
  int repeats = 5;
  // A limit on all rounds: none is begun that, as long as the last, would end
  // later. 0: no limit. The first is always run.
  double limit_seconds = 0;
  bool wants_limits = true;  // of the machine; of no use with make_engine
  // Sees the last of the cells, in the first round.
  Trace* trace = nullptr;
  Progress progress = [](const std::string&) {};
};

struct ZeroCell {
  ZeroSizes sizes;
  Overlap overlap = Overlap::kBackground;
  std::string error;  // why it was not run; then all below is empty
  std::optional<Plan> plan = {};
  PlannedBytes bytes = {};
  std::vector<IterationTrial> trials = {};  // one a round
  IterationOutlook predicted = {};
  int64_t memory_predicted_max = 0;
  int first_timed = 1;      // number of the first timed iteration of a round
  double link_seconds = 0;  // of the busiest port in an iteration, as planned
  double edge_seconds = 0;  // of it, what nothing can hide
  double step_limit = 1;    // of step_hidden_fraction(), as planned

  const IterationTrial& first() const { return trials.front(); }
  // Over all timed iterations of all rounds, each the slowest rank's. The
  // spread is largest - smallest; mean and worst are over a period of
  // refreshes.
  double iteration_seconds() const;
  double iteration_spread() const;
  StepTimes iteration_times() const;
  // Over rounds.
  double median(double IterationTrial::*member) const;
  // Over all rounds together.
  // 1 - time compute waited / time links were busy; and of that time the share
  // in which compute went on, which waits for slower ranks do not lower.
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
  Link link = {};  // as it was used
  ZeroSizes measured_first;
  double compute_seconds = 0;  // of an iteration there
  MeasuredInputs inputs = {};

  // Cells that must lead to the same parameters and states and do not: names
  // two of them; empty if all is well.
  std::string disagreement(const Mesh& mesh, int64_t num_micro_batches,
                           GradientWire wire) const;
};

ZeroBench run_zero_bench(const ZeroBenchRequest& request);

}  // namespace canzona
