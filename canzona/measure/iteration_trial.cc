#include "canzona/measure/iteration_trial.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"
#include "canzona/measure/clock.h"
#include "canzona/measure/step_bench.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/runtime/gradients.h"
#include "canzona/train/train_rank.h"

namespace canzona {

TimedWork::TimedWork(const Plan& plan, const Coordinates& at, double seconds)
    : shares_(static_cast<size_t>(num_modules(plan.model)), 0.0) {
  for (size_t t = 0; t < plan.model.tensors.size(); ++t) {
    const Tensor& tensor = plan.model.tensors[t];
    if (holds(plan, at, tensor) && tensor.role != Role::kEmbedding)
      shares_[static_cast<size_t>(module_of(plan.model, tensor))] +=
          static_cast<double>(tensor.elements());
  }
  const double all = std::accumulate(shares_.begin(), shares_.end(), 0.0);
  if (all == 0) shares_.back() = 1;
  for (double& share : shares_) share *= seconds / (all == 0 ? 1 : all);
}

void TimedWork::work(double seconds) {
  if (seconds <= ahead_) {
    ahead_ -= seconds;
    return;
  }
  const double wanted = seconds - ahead_;
  const double begin = wall_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(wanted));
  ahead_ = wall_seconds() - begin - wanted;
}

namespace {

Matrices rows_of(const Run& run, int64_t rows, int64_t cols) {
  return {run.data, run.dtype, rows, cols, cols, 1, rows * cols, nullptr};
}

int64_t tokens_of(const Model& model, const Tensor& tensor, int64_t tokens) {
  if (tensor.expert < 0 || model.num_experts == 0) return tokens;
  const int64_t visited = std::max<int64_t>(model.experts_per_token, 1);
  return std::max<int64_t>(tokens * visited / model.num_experts, 1);
}

}  // namespace

EngineWork::EngineWork(Runtime& runtime, Engine& engine,
                       const ModuleCompute& compute)
    : runtime_(runtime),
      engine_(engine),
      timed_(runtime.plan(), runtime.coordinates(), compute.seconds),
      multiplies_(compute.tokens > 0),
      weights_(index(num_modules(runtime.plan().model))),
      memory_(engine) {
  if (!multiplies_) return;
  for (int32_t t = 0; t < std::ssize(runtime.plan().model.tensors); ++t)
    add_weight(t, compute);
  make_numbers();
}

void EngineWork::add_weight(int32_t t, const ModuleCompute& compute) {
  const Model& model = runtime_.plan().model;
  const Tensor& tensor = model.tensors[index(t)];
  if (!runtime_.holds(t) || tensor.role == Role::kEmbedding || tensor.frozen ||
      tensor.shape.size() < 2)
    return;
  const int64_t elements = runtime_.shard_elements(t);
  if (elements == 0) return;
  Weight weight{t, tensor.rows(), tensor.cols(),
                tokens_of(model, tensor, compute.tokens)};
  if (tensor.cut == Cut::kColumns)
    weight.cols = elements / weight.rows;
  else
    weight.rows = elements / weight.cols;
  weights_[index(module_of(model, tensor))].push_back(weight);
}

// Fills all buffers with the numbers of the largest shard, repeated as needed.
void EngineWork::make_numbers() {
  int64_t most_weights = 0, most_activations = 0;
  int32_t largest = -1;
  for (const auto& module : weights_)
    for (const Weight& weight : module) {
      most_activations = std::max(
          most_activations, weight.tokens * std::max(weight.rows, weight.cols));
      if (weight.rows * weight.cols <= most_weights) continue;
      most_weights = weight.rows * weight.cols;
      largest = weight.tensor;
    }
  if (largest < 0) return;
  weight_ = memory_.take(most_weights, DType::kBf16);
  activations_ = memory_.take(most_activations, DType::kBf16);
  result_ = memory_.take(std::max(most_weights, most_activations));
  auto* numbers = reinterpret_cast<float*>(result_.data);
  const Plan& plan = runtime_.plan();
  make_parameter(engine_, plan.model.tensors[index(largest)], plan.mesh.tp,
                 runtime_.coordinates().t, numbers);
  const auto fill = [&](const Run& run, int64_t count) {
    auto* to = reinterpret_cast<uint16_t*>(run.data);
    for (int64_t done = 0; done < count; done += most_weights)
      engine_.round_to_bf16(to + done, numbers,
                            std::min(most_weights, count - done));
  };
  fill(weight_, most_weights);
  fill(activations_, most_activations);
}

Matrices EngineWork::activations(int64_t tokens, int64_t width) const {
  return rows_of(activations_, tokens, width);
}
Matrices EngineWork::result(int64_t rows, int64_t cols) const {
  return rows_of(result_, rows, cols);
}
Matrices EngineWork::weight(const Weight& of) const {
  return rows_of(weight_, of.rows, of.cols);
}

void EngineWork::forward(int32_t module) {
  if (!multiplies_) return engine_.idle(timed_.share(module) / 3);
  for (const Weight& w : weights_[index(module)])
    engine_.bf16_product(result(w.tokens, w.rows),
                         activations(w.tokens, w.cols), Op::kNone, weight(w),
                         Op::kTranspose);
}

void EngineWork::backward(int32_t module) {
  if (!multiplies_) return engine_.idle(timed_.share(module) * 2 / 3);
  for (const Weight& w : weights_[index(module)]) {
    engine_.bf16_product(result(w.tokens, w.cols),
                         activations(w.tokens, w.rows), Op::kNone, weight(w),
                         Op::kNone);
    engine_.bf16_product(
        matrices(runtime_.gradient(w.tensor).data(), w.rows, w.cols),
        activations(w.tokens, w.rows), Op::kTranspose,
        activations(w.tokens, w.cols), Op::kNone);
  }
}

void set_first_parameter(Runtime& runtime, Engine& engine, int32_t tensor) {
  const Plan& plan = runtime.plan();
  Arena& arena = engine.arena();
  const Arena::Scope scope(arena);
  auto* shard = arena.take_array<float>(runtime.shard_elements(tensor));
  make_parameter(engine, plan.model.tensors[index(tensor)], plan.mesh.tp,
                 runtime.coordinates().t, shard);
  runtime.set_parameter_there(tensor, shard);
}

namespace {

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

IterationTrial trial_of_all(Communicator& world, Runtime& runtime,
                            const IterationTrialRequest& request,
                            const IterationNumbers& numbers,
                            const std::vector<double>& seconds,
                            const std::vector<double>& module_seconds) {
  IterationTrial trial;
  if (request.wants_digests) {
    trial.digest = runtime.parameter_digest();
    trial.state_digest = runtime.state_digest();
  }
  trial.seconds = slowest(from_all<double>(world, seconds));
  add_modules(from_all<double>(world, module_seconds), trial);
  add_ranks(one_from_all(world, numbers), request, trial);
  return trial;
}

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
          "iterations on a device can only be timed if ranks do not wait for "
          "it; these ranks do");
    if (plan_.mesh.pp > 1)
      throw UsageError(
          cat("iterations on a device support one pipeline stage, not pp=",
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
