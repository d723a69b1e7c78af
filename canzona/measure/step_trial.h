// Executes one plan on real ranks and times it. All ranks must call it at the
// same time.
//
//   run_ranks(plan.mesh.world(), [&](Communicator& world) {
//     const auto engine = make_cpu_engine();
//     StepTrial trial = run_step_trial(plan, world, *engine, request);
//   });
//
// First come steps with fresh gradients: they show how long steps take and what
// they compute. Then come iterations, with work that stands in for forward and
// backward (stand_in.h) and whatever gradients are in memory: they show how
// much communication is hidden. Both make the calls of a trainer, use by use.
// If the runtime is asynchronous, all times of an iteration are the engine's:
// the host does not wait between the first and the last.
//
// Every rank gets the same result, combined from all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/comm/communicator.h"
#include "canzona/linalg/engine.h"
#include "canzona/measure/clock.h"
#include "canzona/measure/step_times.h"
#include "canzona/plan/plan.h"
#include "canzona/runtime/gradients.h"
#include "canzona/runtime/runtime.h"

namespace canzona::measure {

struct StepTrialRequest {
  GradientKind gradients = GradientKind::kExact;
  int steps = 5;
  int warmup = 1;  // of the steps, the first ones untimed
  int iterations = 4;
  int64_t micro_batches = 1;   // of a step, and of an iteration
  double compute_seconds = 0;  // forward and backward of one iteration
  // If above 0 and the runtime is asynchronous: products with this many tokens
  // of every micro-batch instead of that time.
  int64_t product_tokens = 0;
  double clip_norm = 0;
  bool digests = true;
  RuntimeOptions runtime = {};
  // Rank 0 reports the phases until the first step has ended; may be null,
  // otherwise must outlive the trial.
  Phases* phases = nullptr;
};

// How long compute waited, links were busy, and compute waited meanwhile
// (RuntimeTimes): mean over ranks.
struct LinkTimes {
  double waited = 0;
  double busy = 0;
  double exposed = 0;

  // 1 - waited / busy: the share of the links' time that cost nothing.
  double hidden_fraction() const;
  // The share of the links' time in which compute went on.
  double covered_fraction() const;
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
  LinkTimes step_links;  // of gathers and scatters of matrices, in a step

  // Times of the slowest rank, iteration by iteration; 0 without iterations.
  StepTimes iteration;
  double compute_seconds =
      0;            // of an iteration, without waits, mean over ranks
  LinkTimes links;  // in an iteration
  // False if the busy time of links is unknown: with an asynchronous runtime,
  // it is visible only if links are modelled. Nor is it then known how long
  // compute waited meanwhile.
  bool knows_busy = true;
  bool knows_exposed = false;

  int64_t bytes_sent_max = 0;  // per step
  std::vector<int64_t> bytes_sent;
  std::vector<int64_t> slow_bytes_sent;  // of these, to other nodes
  int64_t slow_bytes_sent_max = 0;
  int64_t memory_bytes_max = 0;
  std::vector<int64_t> memory_bytes;
  Runtime::PoolUse pools = {};  // the maximum over all ranks
};

// Throws NumericalError if a gradient is not finite.
StepTrial run_step_trial(const Plan& plan, Communicator& world, Engine& engine,
                         const StepTrialRequest& request);

}  // namespace canzona::measure
