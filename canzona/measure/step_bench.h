// Strategies side by side: each planned, carried out and timed on the same
// ranks, with the same gradients.
//
//   StepBenchRequest request;
//   request.strategies = {"replicated", "balanced"};
//   request.plan = [&](const std::string& strategy, const auto& link) { … };
//   request.run = on_threads(4, {});
//   StepBench bench = run_step_bench(request);
//
// If forward and backward are to take a sensible time, or links to be as fast
// as makes communication a given part of compute, one strategy is measured
// first, without links: `balanced` if it is among them, else the first.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "canzona/measure/machine_speed.h"
#include "canzona/measure/rank_runner.h"
#include "canzona/measure/shared_machine.h"
#include "canzona/measure/step_trial.h"
#include "canzona/measure/transform.h"
#include "canzona/plan/predict/predict.h"

namespace canzona {

struct StepBenchRequest {
  std::vector<std::string> strategies;
  // UsageError: this strategy cannot.
  std::function<Plan(const std::string& strategy, const Link& link)> plan;
  RankRunner run;
  std::string device = "cpu";
  // Ranks that share a GPU, and what the library that joins them takes of it
  // for each.
  int ranks_per_gpu = 1;
  int64_t library_bytes = 0;
  StepTrialRequest trial = {};
  // The time of forward and backward; none: twice the step of the strategy that
  // is measured first.
  std::optional<double> compute_seconds = {};
  Link link = {};
  // Above 0: the link's bandwidths, or 1 GB/s, are scaled so that a rank sends
  // for this part of the time that it computes in an iteration.
  double comm_ratio = 0;
  // Run every plan once more without its pipeline.
  bool with_serial = false;
  // A plan of the same model for one rank: then scaling is measured, too.
  std::function<Plan()> one_rank = {};
  Progress progress = [](const std::string&) {};
  // Phases that have passed before.
  Phases* phases = nullptr;
};

struct StrategyBench {
  std::string name;
  std::string error;  // why it was not run; then all below is empty
  std::optional<Plan> plan = {};
  // By the cost table, else by what was measured (StepBench::speed).
  std::vector<RankCost> predicted = {};
  double predicted_mean() const;   // step of the slowest rank, over a period
  double predicted_worst() const;  // its worst step
  StepTrial trial = {};
  int64_t bytes_predicted_max = 0;
  int64_t slow_bytes_predicted_max = 0;  // to other nodes
  int64_t memory_predicted_max = 0;
  StepTimes serial_step = {};          // if it was asked for
  double speedup_over_replicated = 0;  // mean steps; 0: that was not run
};

struct StepBench {
  std::vector<StrategyBench> strategies;
  double compute_seconds = 0;
  std::string measured_first;  // the strategy; empty: none was needed
  Link link = {};              // as it was used
  // Until the first step of the first run has ended, which is the last phase.
  std::vector<Phase> beginning = {};
  // Bytes that a rank copies in a second while all others do, too; measured
  // only where a link is modelled.
  double copy_bytes_per_second = 0;

  // Plans without a cost table need it on a CPU, for predictions alone.
  std::optional<MachineSpeed> speed = {};

  // If one rank was measured: its step, and how the ranks share the machine.
  StepTimes one_rank_step = {};
  SharedProducts products = {};                      // in fp32
  std::optional<SharedProducts> products_bf16 = {};  // if the rule has such
  // Step of one rank / (ranks · step): 1 is a step without any loss. Divided by
  // products.efficiency() it says what is lost beyond the machine's own.
  double scaling(const StrategyBench& strategy) const;
};

// UsageError, with all of them, if ranks with so many bytes each, by the plan
// and for their library, do not fit into what is free of a GPU.
void require_gpu_memory(const std::string& strategy, int num_ranks,
                        int64_t plan_bytes, int64_t library_bytes,
                        int64_t free_bytes);

StepBench run_step_bench(const StepBenchRequest& request);

}  // namespace canzona
