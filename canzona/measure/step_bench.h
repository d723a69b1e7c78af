// Compares strategies: each is planned, executed and timed on the same ranks,
// with the same gradients.
//
//   StepBenchRequest request;
//   request.strategies = {"replicated", "balanced"};
//   request.plan = [&](const std::string& strategy, const auto& link) { … };
//   request.run = on_threads(4, {});
//   StepBench bench = run_step_bench(request);
//
// If the time of forward and backward is to be chosen automatically, or links
// are to be scaled to a given share of compute, one strategy is measured first,
// without links: `balanced` if it is among them, otherwise the first.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "canzona/measure/machine.h"
#include "canzona/measure/rank_runner.h"
#include "canzona/measure/rule_step.h"
#include "canzona/measure/step_trial.h"
#include "canzona/plan/predict/predict.h"

namespace canzona {

struct StepBenchRequest {
  std::vector<std::string> strategies;
  // Throws UsageError if this strategy is not possible.
  std::function<Plan(const std::string& strategy, const Link& link)> plan;
  RankRunner run;
  std::string device = "cpu";
  // The number of ranks that share a GPU, and the memory that the communication
  // library takes for each.
  int ranks_per_gpu = 1;
  int64_t library_bytes = 0;
  StepTrialRequest trial = {};
  // The time of forward and backward; if empty, twice the step of the strategy
  // measured first.
  std::optional<double> compute_seconds = {};
  Link link = {};
  // If above 0, the link's bandwidths, or 1 GB/s, are scaled so that a rank
  // sends for this fraction of its compute time in an iteration.
  double comm_ratio = 0;
  // Runs every plan once more without its pipeline.
  bool with_serial = false;
  // Returns a plan of the same model for one rank; if set, scaling is measured,
  // too.
  std::function<Plan()> one_rank = {};
  Progress progress = [](const std::string&) {};
  // Phases so far.
  Phases* phases = nullptr;
};

struct StrategyBench {
  std::string name;
  std::string error;  // why it was not run; everything below is then empty
  std::optional<Plan> plan = {};
  // From the cost table, otherwise from measured rates (StepBench::speed).
  std::vector<RankCost> predicted = {};
  double predicted_mean() const;   // step of the slowest rank, mean over a
                                   // period
  double predicted_worst() const;  // its worst step
  StepTrial trial = {};
  int64_t bytes_predicted_max = 0;
  int64_t slow_bytes_predicted_max = 0;  // to other nodes
  int64_t memory_predicted_max = 0;
  StepTimes serial_step = {};          // if requested
  double speedup_over_replicated = 0;  // of mean steps; 0: replicated was not
                                       // run
};

struct StepBench {
  std::vector<StrategyBench> strategies;
  double compute_seconds = 0;
  std::string measured_first;  // strategy; empty: not needed
  Link link = {};              // as used
  // The phases until the first step of the first run has ended, which is the
  // last phase.
  std::vector<Phase> beginning = {};
  // Bytes per second that a rank copies while all others do, too; measured only
  // if a link is modelled.
  double copy_bytes_per_second = 0;

  // Only for predictions of plans without a cost table, on a CPU.
  std::optional<MachineSpeed> speed = {};

  // If one rank was measured: its step, and how the ranks share the machine.
  StepTimes one_rank_step = {};
  SharedProducts products = {};                      // in fp32
  std::optional<SharedProducts> products_bf16 = {};  // if the rule uses bf16
  // Step of one rank / (ranks · step); 1 is a step without any loss. Divided by
  // products.efficiency() it shows what is lost beyond the machine's own loss.
  double scaling(const StrategyBench& strategy) const;
};

// Throws UsageError with all numbers if this many ranks, with these bytes each
// for the plan and for the library, do not fit into the free memory of a GPU.
void require_gpu_memory(const std::string& strategy, int num_ranks,
                        int64_t plan_bytes, int64_t library_bytes,
                        int64_t free_bytes);

StepBench run_step_bench(const StepBenchRequest& request);

}  // namespace canzona
