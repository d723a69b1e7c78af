// Real iterations of training, timed: one rank's part of it.
//
//   run_ranks(plan.mesh.world(), [&](Communicator& world) {
//     const auto engine = make_cpu_engine();
//     IterationTrial trial = run_iteration_trial(
//         settings, plan, batches, world, *engine, {.steps = 3});
//   });
//
// An iteration is what `canzona train` does in a step, without records: forward
// and backward of all micro-batches, the optimizer's step, and what of the
// communication nothing hides. All ranks call it at once, with the same things,
// and get the same result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/data/batches.h"
#include "canzona/train/trainer.h"

namespace canzona {

struct IterationTrialRequest {
  int warmup = 1;  // iterations that are not timed
  int steps = 3;   // that are
  bool wants_digests = true;
  bool wants_modules = true;  // how long each takes, where that is extra work
};

struct IterationTrial {
  double iteration_seconds = 0;  // mean over iterations, slowest rank
  std::vector<double> seconds;   // of each, the slowest rank
  // Times of an iteration, mean over ranks: what the thread that computes was
  // not waiting, and was; how long links were busy (RuntimeTimes), and how much
  // of that it was waiting.
  double compute_seconds = 0;
  double waited_seconds = 0;
  double busy_seconds = 0;
  double exposed_seconds = 0;
  // Between the last gradient and the end of the step: without what it waited,
  // the slowest rank; then of the gathers and scatters of matrices alone.
  double step_seconds = 0;
  double step_waited_seconds = 0;
  double step_busy_seconds = 0;
  double step_exposed_seconds = 0;
  // By module, of one micro-batch, without what was waited; median over ranks.
  std::vector<double> forward_seconds;
  std::vector<double> backward_seconds;
  // The bytes of an iteration, by rank.
  std::vector<int64_t> bytes_sent;
  std::vector<int64_t> slow_bytes_sent;
  std::vector<int64_t> memory_bytes;  // reserved by the runtime, by rank
  // The most of all ranks.
  Runtime::PoolUse pools = {};
  std::string digest;  // of parameters, after the last iteration
  std::string state_digest;
  double loss = 0;  // of the last iteration, mean over ranks
};

IterationTrial run_iteration_trial(const TrainSettings& settings,
                                   const Plan& plan, const Batches& batches,
                                   Communicator& world, Engine& engine,
                                   const IterationTrialRequest& request);

}  // namespace canzona
