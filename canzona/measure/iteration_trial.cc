#include "canzona/measure/iteration_trial.h"

#include <numeric>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/measure/clock.h"
#include "canzona/measure/iteration_numbers.h"
#include "canzona/train/train_rank.h"

namespace canzona {
namespace {

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

// One rank's trial.
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
  // Returns forward and backward, module by module.
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

}  // namespace

IterationTrial run_iteration_trial(const TrainSettings& settings,
                                   const Plan& plan, const Batches& batches,
                                   Communicator& world, Engine& engine,
                                   const IterationTrialRequest& request) {
  CANZONA_CHECK(request.steps > 0 && request.warmup >= 0);
  check_training(settings, plan.mesh);
  IterationRank rank(settings, plan, batches, world, engine);
  rank.run(request.warmup, request.steps);
  return trial_of_all(world, rank.runtime(), request, rank.numbers(),
                      rank.seconds(), rank.module_seconds());
}

}  // namespace canzona
