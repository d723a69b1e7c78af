#include "canzona/measure/device_trial.h"

#include <algorithm>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/index.h"
#include "canzona/base/text.h"
#include "canzona/measure/iteration_numbers.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/schedule/modules.h"

namespace canzona {
namespace {

// One rank's trial.
class DeviceRank {
 public:
  DeviceRank(const TrainSettings& settings, const Plan& plan,
             const ModuleCompute& compute, Communicator& world, Engine& engine)
      : settings_(settings),
        plan_(plan),
        world_(world),
        engine_(engine),
        runtime_(plan, world, engine, with_timed_waits(settings.runtime)),
        num_micro_batches_(settings.micro_batches(plan.mesh)),
        tensors_(index(num_modules(plan.model))),
        work_(make_work(compute)) {
    numbers_.memory = runtime_.memory().total().value();
    for (int32_t t = 0; t < std::ssize(plan.model.tensors); ++t)
      if (runtime_.holds(t)) add_tensor(t);
    runtime_.zero_gradients();
    for (int32_t m = 0; m < std::ssize(tensors_); ++m)
      if (!tensors_[index(m)].empty()) modules_.push_back(m);
    uses_ = uses_of(usual_calls(plan, 0, num_micro_batches_));
    for (const ModuleUse& use : uses_) used_.push_back(use.module);
    engine_.synchronize();
  }

  void run(const IterationTrialRequest& request) {
    const int64_t before = runtime_.sent().total();
    const int64_t slow_before = runtime_.sent_slow().total();
    for (int i = 0; i < request.warmup; ++i) iterate();
    settle();
    world_.barrier({.label = "before the timed iterations"});
    time_iterations(request.steps);
    numbers_.bytes = runtime_.sent().total() - before;
    numbers_.slow_bytes = runtime_.sent_slow().total() - slow_before;
    numbers_.pools = runtime_.pool_use();
  }

  // Measured while all other ranks do the same, in engine time.
  std::vector<double> module_seconds() {
    std::vector<std::unique_ptr<Event>> marks;
    world_.barrier({.label = "before modules are timed"});
    mark(marks);
    runtime_.begin_iteration(modules_, 1);
    for (const int32_t m : modules_) {
      runtime_.wait_params(m);
      mark(marks);
      work_.forward(m);
      mark(marks);
      work_.backward(m);
      mark(marks);
      announce(m);
      runtime_.release_params(m);
    }
    engine_.synchronize();
    std::vector<double> seconds(2 * tensors_.size());
    for (size_t i = 0; i < modules_.size(); ++i) {
      const size_t at = 2 * index(modules_[i]);
      seconds[at] = marks[3 * i + 2]->seconds_after(*marks[3 * i + 1]);
      seconds[at + 1] = marks[3 * i + 3]->seconds_after(*marks[3 * i + 2]);
    }
    return seconds;
  }

  Runtime& runtime() { return runtime_; }
  const IterationNumbers& numbers() const { return numbers_; }
  const std::vector<double>& seconds() const { return seconds_; }

 private:
  EngineWork make_work(const ModuleCompute& compute) {
    if (!runtime_.only_issues())
      throw UsageError(
          "iterations of a device are timed where ranks only issue to it; "
          "these wait for it");
    if (plan_.mesh.pp > 1)
      throw UsageError(
          cat("iterations of a device have one pipeline stage, "
              "not pp=",
              plan_.mesh.pp));
    return {runtime_, engine_, compute};
  }

  void add_tensor(int32_t t) {
    const Tensor& tensor = plan_.model.tensors[index(t)];
    tensors_[index(module_of(plan_.model, tensor))].push_back(t);
    set_first_parameter(runtime_, engine_, t);
  }

  void mark(std::vector<std::unique_ptr<Event>>& marks) {
    marks.push_back(engine_.make_timed_event());
    engine_.record_in(*marks.back());
  }
  void announce(int32_t module) {
    for (const int32_t t : tensors_[index(module)]) runtime_.grad_ready(t);
  }
  // Also reports what the check of the last step has found.
  void settle() {
    const StepOutcome outcome = runtime_.outcome();
    if (outcome.skipped)
      throw NumericalError(cat("the gradient of ",
                               quoted(outcome.nonfinite_tensor), " on rank ",
                               outcome.nonfinite_rank, " is not finite"));
    engine_.synchronize();
  }

  void run_modules() {
    runtime_.begin_iteration(used_, num_micro_batches_);
    int32_t beside = -1;
    for (const ModuleUse& use : uses_) {
      runtime_.wait_params(use.module);
      if (use.is_beside) {
        beside = use.module;
        continue;
      }
      if (use.is_backward)
        work_.backward(use.module);
      else
        work_.forward(use.module);
      if (use.completes()) announce(use.module);
      runtime_.release_params(use.module);
      if (beside >= 0) runtime_.release_params(std::exchange(beside, -1));
    }
  }
  void update() {
    ++step_;
    const double homes =
        static_cast<double>(plan_.mesh.homes() * num_micro_batches_);
    runtime_.issue_step(
        {.learning_rate = settings_.learning_rate(step_),
         .adamw_learning_rate = settings_.adamw_learning_rate(step_),
         .gradient_factor = 1 / homes,
         .clip_norm = settings_.clip_norm});
  }
  void iterate() {
    run_modules();
    update();
  }

  // Records a mark before each step, and one after the last.
  void time_iterations(int steps) {
    const RuntimeTimes before = runtime_.times();
    std::vector<std::unique_ptr<Event>> marks;
    mark(marks);
    for (int i = 0; i < steps; ++i) {
      run_modules();
      mark(marks);
      update();
      mark(marks);
    }
    settle();
    const RuntimeTimes after = runtime_.times();
    for (size_t i = 0; i < index(steps); ++i) {
      seconds_.push_back(marks[2 * i + 2]->seconds_after(*marks[2 * i]));
      numbers_.total += seconds_.back();
      numbers_.step += marks[2 * i + 2]->seconds_after(*marks[2 * i + 1]);
    }
    numbers_.waited = after.waited() - before.waited();
    numbers_.busy = after.links_busy - before.links_busy;
    numbers_.step_waited = after.waited_in_step - before.waited_in_step;
    numbers_.step_busy = after.exchange_busy - before.exchange_busy;
    numbers_.step = std::max(0.0, numbers_.step - numbers_.step_waited);
  }

  const TrainSettings& settings_;
  const Plan& plan_;
  Communicator& world_;
  Engine& engine_;
  Runtime runtime_;
  const int64_t num_micro_batches_;
  std::vector<std::vector<int32_t>> tensors_;  // on this rank, by module
  std::vector<int32_t> modules_;               // on this rank
  std::vector<ModuleUse> uses_;                // in an iteration
  std::vector<int32_t> used_;                  // modules of the uses
  EngineWork work_;
  int64_t step_ = 0;
  std::vector<double> seconds_;
  IterationNumbers numbers_;
};

}  // namespace

IterationTrial run_device_trial(const TrainSettings& settings, const Plan& plan,
                                const ModuleCompute& compute,
                                Communicator& world, Engine& engine,
                                const IterationTrialRequest& request) {
  CANZONA_CHECK(request.steps > 0 && request.warmup >= 0);
  DeviceRank rank(settings, plan, compute, world, engine);
  rank.run(request);
  std::vector<double> module_seconds(2 * index(num_modules(plan.model)));
  if (request.wants_modules) module_seconds = rank.module_seconds();
  return trial_of_all(world, rank.runtime(), request, rank.numbers(),
                      rank.seconds(), module_seconds);
}

}  // namespace canzona
