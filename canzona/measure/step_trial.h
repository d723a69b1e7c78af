// One plan carried out by real ranks, and timed. All ranks call it at once.
//
//   run_ranks(plan.mesh.world(), [&](Communicator& world) {
//     const auto engine = make_cpu_engine();
//     StepTrial trial = run_step_trial(plan, world, *engine, request);
//   });
//
// First come steps whose gradients are made anew, untimed, in front of each:
// they say how long steps take and what they lead to. Then iterations, with
// timed work in the place of forward and backward and gradients as they lie in
// memory: they say what of the communication is hidden. Where the runtime only
// issues, that work is the engine's (engine_work.h), and so are all times of an
// iteration: nobody waits between the first and the last.
//
// Every rank gets the same result, made of the numbers of all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/measure/phases.h"
#include "canzona/measure/step_times.h"
#include "canzona/runtime/gradients.h"
#include "canzona/runtime/runtime.h"

namespace canzona {

struct StepTrialRequest {
  GradientKind gradients = GradientKind::kExact;
  int steps = 5;
  int warmup = 1;  // of the steps, the first that are not timed
  int iterations = 4;
  double compute_seconds = 0;  // forward and backward of one iteration
  // Above 0, where the runtime only issues: their products for so many tokens,
  // instead of that time.
  int64_t product_tokens = 0;
  double clip_norm = 0;
  bool digests = true;
  RuntimeOptions runtime = {};
  // Rank 0 tells what comes next, until the first step has ended; may be null,
  // outlives the trial.
  Phases* phases = nullptr;
};

struct StepTrial {
  std::string digest;  // of parameters after the steps, if asked for
  std::string state_digest;
  double digest_seconds = 0;  // that both took, rank 0's

  // Times of the slowest rank, step by step: last gradient reduced → last
  // parameter applied, and → all parameters gathered.
  StepTimes step;
  StepTimes step_and_gather;
  // The same as `step` without what it waited, the slowest rank's median.
  double step_compute_seconds = 0;
  // That the thread of the slowest rank took to issue a step, median; all of it
  // where work has ended when a call returns.
  double host_seconds = 0;
  std::vector<double> rank_seconds;  // of a step, by rank, mean over a period

  double iteration_seconds = 0;  // mean, of the slowest rank; 0 without any
  // Over all ranks and iterations: 1 - time compute waited / time links were
  // busy; the same inside the steps alone.
  double hidden_fraction = 0;
  double step_hidden_fraction = 0;
  // False if these two are not known: if the runtime only issues, nobody sees
  // how long links are busy unless they are modelled.
  bool knows_hidden = true;
  double waited_seconds = 0;  // of an iteration, mean over ranks
  double links_busy_seconds = 0;

  int64_t bytes_sent_max = 0;  // of a step
  std::vector<int64_t> bytes_sent;
  std::vector<int64_t> slow_bytes_sent;  // of these, to other nodes
  int64_t slow_bytes_sent_max = 0;
  int64_t memory_bytes_max = 0;
  std::vector<int64_t> memory_bytes;
};

// NumericalError if a gradient is not finite.
StepTrial run_step_trial(const Plan& plan, Communicator& world, Engine& engine,
                         const StepTrialRequest& request);

}  // namespace canzona
