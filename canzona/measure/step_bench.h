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

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "canzona/measure/clock.h"
#include "canzona/measure/machine.h"
#include "canzona/measure/rank_runner.h"
#include "canzona/measure/rule_step.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/runtime/gradients.h"
#include "canzona/runtime/runtime.h"

namespace canzona {

// Executes one plan on real ranks and times it. All ranks must call it at the
// same time.
//
//   run_ranks(plan.mesh.world(), [&](Communicator& world) {
//     const auto engine = make_cpu_engine();
//     StepTrial trial = run_step_trial(plan, world, *engine, request);
//   });
//
// First come steps with fresh gradients, which are made untimed before each:
// they show how long steps take and what they compute. Then come iterations,
// with timed work instead of forward and backward and whatever gradients are in
// memory: they show how much communication is hidden. If the runtime is
// asynchronous, that work is the engine's (iteration_trial.h), and so are all
// times of an iteration: the host does not wait between the first and the last.
//
// Every rank gets the same result, combined from all ranks.

// Summarizes the seconds of many steps.
//
//   StepTimes times = summarize_steps(seconds, /*first=*/2, /*period=*/10);
//
// Rules that refresh something every `period` steps have that many kinds of
// steps. The mean is taken over a period, with the median of each kind, so that
// it does not depend on how many of a kind were measured.
struct StepTimes {
  double median = 0;
  double mean = 0;   // over a period
  double worst = 0;  // of the slowest kind of step
  bool covers_period = true;
};

double median_of(std::vector<double> values);

// `first` is the number of the first step, counted from 1.
StepTimes summarize_steps(std::span<const double> seconds, int64_t first,
                          int64_t period);

// Returns the element-wise maximum of all rows.
std::vector<double> slowest(const std::vector<std::vector<double>>& rows);

struct StepTrialRequest {
  GradientKind gradients = GradientKind::kExact;
  int steps = 5;
  int warmup = 1;  // of the steps, the first ones untimed
  int iterations = 4;
  double compute_seconds = 0;  // forward and backward of one iteration
  // If above 0 and the runtime is asynchronous: products with this many tokens
  // instead of that time.
  int64_t product_tokens = 0;
  double clip_norm = 0;
  bool digests = true;
  RuntimeOptions runtime = {};
  // Rank 0 reports the phases until the first step has ended; may be null,
  // otherwise must outlive the trial.
  Phases* phases = nullptr;
};

struct StepTrial {
  std::string digest;  // of parameters after the steps, if requested
  std::string state_digest;
  double digest_seconds = 0;  // for both, on rank 0

  // Times of the slowest rank, step by step: last gradient reduced → last
  // parameter applied, and → all parameters gathered.
  StepTimes step;
  StepTimes step_and_gather;
  // The median compute time of the slowest rank in `step`, without waiting.
  double step_compute_seconds = 0;
  // How long the slowest rank's thread took to issue a step, median; the whole
  // step if the runtime is synchronous.
  double host_seconds = 0;
  std::vector<double> rank_seconds;  // per step, by rank, mean over a period

  double iteration_seconds = 0;  // mean, slowest rank; 0 without iterations
  // Over all ranks and iterations: 1 - time compute waited / time links were
  // busy; the second is inside the steps only.
  double hidden_fraction = 0;
  double step_hidden_fraction = 0;
  // False if these two are unknown: with an asynchronous runtime, the busy time
  // of links is visible only if they are modelled.
  bool knows_hidden = true;
  double waited_seconds = 0;  // of an iteration, mean over ranks
  double links_busy_seconds = 0;

  int64_t bytes_sent_max = 0;  // per step
  std::vector<int64_t> bytes_sent;
  std::vector<int64_t> slow_bytes_sent;  // of these, to other nodes
  int64_t slow_bytes_sent_max = 0;
  int64_t memory_bytes_max = 0;
  std::vector<int64_t> memory_bytes;
};

// Throws NumericalError if a gradient is not finite.
StepTrial run_step_trial(const Plan& plan, Communicator& world, Engine& engine,
                         const StepTrialRequest& request);

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
