// Times real iterations of training, on one rank.
//
//   run_ranks(plan.mesh.world(), [&](Communicator& world) {
//     const auto engine = make_cpu_engine();
//     IterationTrial trial = run_iteration_trial(
//         settings, plan, batches, world, *engine, {.steps = 3});
//   });
//
// An iteration is what `canzona train` does in a step, without records: forward
// and backward of all micro-batches, the optimizer's step, and the
// communication that is not hidden. All ranks must call it at the same time
// with the same arguments, and get the same result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/data/batches.h"
#include "canzona/train/trainer.h"

namespace canzona {

struct IterationTrialRequest {
  int warmup = 1;  // untimed iterations
  int steps = 3;   // timed iterations
  bool wants_digests = true;
  bool wants_modules = true;  // times per module, if that is extra work
};

struct IterationTrial {
  double iteration_seconds = 0;  // mean over iterations, slowest rank
  std::vector<double> seconds;   // of each, the slowest rank
  // Times of an iteration, mean over ranks: how long the computing thread was
  // not waiting and was waiting; how long links were busy (RuntimeTimes), and
  // how long it waited meanwhile.
  double compute_seconds = 0;
  double waited_seconds = 0;
  double busy_seconds = 0;
  double exposed_seconds = 0;
  // From the last gradient to the end of the step: the compute time of the
  // slowest rank; then waiting and link time of the gathers and scatters of
  // matrices alone.
  double step_seconds = 0;
  double step_waited_seconds = 0;
  double step_busy_seconds = 0;
  double step_exposed_seconds = 0;
  // By module and micro-batch, without waiting; median over ranks.
  std::vector<double> forward_seconds;
  std::vector<double> backward_seconds;
  // The bytes of an iteration, by rank.
  std::vector<int64_t> bytes_sent;
  std::vector<int64_t> slow_bytes_sent;
  std::vector<int64_t> memory_bytes;  // reserved by the runtime, by rank
  // The maximum over all ranks.
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
