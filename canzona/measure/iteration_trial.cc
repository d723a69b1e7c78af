#include "canzona/measure/iteration_trial.h"

#include <algorithm>
#include <numeric>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"
#include "canzona/measure/clock.h"
#include "canzona/measure/step_times.h"
#include "canzona/train/train_rank.h"

namespace canzona {
namespace {

// The measurements of one rank in all timed iterations, as numbers that are
// alike on all ranks.
struct IterationNumbers {
  double total = 0;
  double waited = 0, busy = 0, exposed = 0;
  double step = 0, step_waited = 0, step_busy = 0, step_exposed = 0;
  double loss = 0;
  int64_t bytes = 0, slow_bytes = 0;  // of all iterations
  int64_t memory = 0;
  Runtime::PoolUse pools;
};

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

// One rank's part.
class IterationRank {
 public:
  IterationRank(const TrainSettings& settings, const Plan& plan,
                const Batches& batches, Communicator& world, Engine& engine)
      : world_(world), rank_(settings, plan, batches, world, engine) {
    numbers_.memory = runtime().memory().total().value();
  }

  void run(int warmup, int steps) {
    const SentBytes before = rank_.sent();
    for (int i = 0; i < warmup; ++i) iterate(++step_);
    rank_.stage().clock().reset();
    world_.barrier({.label = "before the timed iterations"});
    for (int i = 0; i < steps; ++i) time_iteration();
    runtime().wait_all_params();
    const SentBytes after = rank_.sent();
    numbers_.bytes = after.all - before.all;
    numbers_.slow_bytes = after.slow - before.slow;
    numbers_.pools = runtime().pool_use();
  }

  Runtime& runtime() { return rank_.runtime(); }
  const IterationNumbers& numbers() const { return numbers_; }
  const std::vector<double>& seconds() const { return seconds_; }
  // Forward and backward, module after module.
  std::vector<double> module_seconds() {
    std::vector<double> out;
    for (const ModuleClock::Passes& module : rank_.stage().clock().modules()) {
      out.push_back(module.forward.mean());
      out.push_back(module.backward.mean());
    }
    return out;
  }

 private:
  void iterate(int64_t step) {
    const std::vector<double> losses = rank_.learn(step);
    const double learned = wall_seconds();
    const TrainRank::Times before = rank_.times();
    const StepOutcome outcome = rank_.update(step);
    if (outcome.skipped)
      throw NumericalError(cat("iteration ", step, ": the gradient of ",
                               quoted(outcome.nonfinite_tensor), " on rank ",
                               outcome.nonfinite_rank, " is not finite"));
    const TrainRank::Times after = rank_.times();
    const RuntimeTimes &a = after.runtime, &b = before.runtime;
    last_step_ = {a.waited_in_step - b.waited_in_step,
                  a.exchange_busy - b.exchange_busy,
                  a.exchange_exposed - b.exchange_exposed};
    last_step_seconds_ =
        wall_seconds() - learned - (after.waited - before.waited);
    numbers_.loss = mean_of(losses);
  }

  void time_iteration() {
    const double begin = wall_seconds();
    const TrainRank::Times before = rank_.times();
    iterate(++step_);
    const TrainRank::Times after = rank_.times();
    seconds_.push_back(wall_seconds() - begin);
    numbers_.total += seconds_.back();
    numbers_.waited += after.waited - before.waited;
    numbers_.busy += after.busy - before.busy;
    numbers_.exposed += after.exposed - before.exposed;
    numbers_.step += last_step_seconds_;
    numbers_.step_waited += last_step_.waited;
    numbers_.step_busy += last_step_.busy;
    numbers_.step_exposed += last_step_.exposed;
  }

  Communicator& world_;
  TrainRank rank_;
  int64_t step_ = 0;
  TrainRank::Times last_step_;
  double last_step_seconds_ = 0;
  std::vector<double> seconds_;
  IterationNumbers numbers_;
};

// Ranks of other stages than a module's have no time for it.
void add_modules(const std::vector<std::vector<double>>& ranks,
                 IterationTrial& trial) {
  for (size_t i = 0; i < ranks.front().size(); ++i) {
    std::vector<double> all;
    for (const std::vector<double>& rank : ranks)
      if (rank[i] > 0) all.push_back(rank[i]);
    auto& to = i % 2 == 0 ? trial.forward_seconds : trial.backward_seconds;
    to.push_back(all.empty() ? 0 : median_of(std::move(all)));
  }
}

void add_rank(const IterationNumbers& rank, int64_t iterations,
              IterationTrial& trial) {
  trial.bytes_sent.push_back(rank.bytes / iterations);
  trial.slow_bytes_sent.push_back(rank.slow_bytes / iterations);
  trial.memory_bytes.push_back(rank.memory);
  Runtime::PoolUse& pools = trial.pools;
  pools.gather_slots = std::max(pools.gather_slots, rank.pools.gather_slots);
  pools.scatter_slots = std::max(pools.scatter_slots, rank.pools.scatter_slots);
  pools.bytes = std::max(pools.bytes, rank.pools.bytes);
}

void add_ranks(const std::vector<IterationNumbers>& ranks,
               const IterationTrialRequest& request, IterationTrial& trial) {
  const double share =
      1.0 / (request.steps * static_cast<double>(ranks.size()));
  for (const IterationNumbers& rank : ranks) {
    trial.compute_seconds += share * (rank.total - rank.waited);
    trial.waited_seconds += share * rank.waited;
    trial.busy_seconds += share * rank.busy;
    trial.exposed_seconds += share * rank.exposed;
    trial.iteration_seconds =
        std::max(trial.iteration_seconds, rank.total / request.steps);
    trial.step_seconds =
        std::max(trial.step_seconds, rank.step / request.steps);
    trial.step_waited_seconds += share * rank.step_waited;
    trial.step_busy_seconds += share * rank.step_busy;
    trial.step_exposed_seconds += share * rank.step_exposed;
    trial.loss += rank.loss / static_cast<double>(ranks.size());
    add_rank(rank, request.warmup + request.steps, trial);
  }
}

}  // namespace

IterationTrial run_iteration_trial(const TrainSettings& settings,
                                   const Plan& plan, const Batches& batches,
                                   Communicator& world, Engine& engine,
                                   const IterationTrialRequest& request) {
  CANZONA_CHECK(request.steps > 0 && request.warmup >= 0);
  check_training(settings, plan.mesh);
  IterationRank rank(settings, plan, batches, world, engine);
  rank.run(request.warmup, request.steps);
  IterationTrial trial;
  if (request.wants_digests) {
    trial.digest = rank.runtime().parameter_digest();
    trial.state_digest = rank.runtime().state_digest();
  }
  trial.seconds = slowest(from_all<double>(world, rank.seconds()));
  add_modules(from_all<double>(world, rank.module_seconds()), trial);
  add_ranks(one_from_all(world, rank.numbers()), request, trial);
  return trial;
}

}  // namespace canzona
