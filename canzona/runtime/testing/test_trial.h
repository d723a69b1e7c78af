// A few steps of a plan on thread ranks, for tests: gradients are derived from
// names and positions, so that every mesh sees the same model.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/plan/make_plan.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/runtime/gradients.h"
#include "canzona/runtime/runtime.h"

namespace canzona::runtime {

struct Trial {
  Plan plan;
  std::string device = "cpu";
  GradientKind gradients = GradientKind::kExact;
  int steps = 3;
  int micro_batches = 1;
  double learning_rate = 0.01;
  double adamw_learning_rate = -1;  // negative: the same
  double clip_norm = 0;
  std::vector<RowFactors> row_factors = {};  // of every step
  RuntimeOptions options = {};
  RunOptions ranks = {};
  // Runs the ranks; default: as threads.
  std::function<void(int num_ranks, const RankFunction& function)> run_on = {};
  // Called on every rank: after the initial values, after the gradients of a
  // step, and at the end.
  std::function<void(Runtime&)> set_parameters = {};
  // Called before a gradient is announced.
  std::function<void(Runtime&, int64_t step, int32_t tensor,
                     std::span<float> gradient)>
      poison = {};
  std::function<bool(int32_t tensor)> skip_announcement = {};
  // Called while a module is in use, forwards and backwards.
  std::function<void(Runtime&, int64_t step, int32_t module)> in_use = {};
  std::function<void(Runtime&, int64_t step)> before_step = {};
  std::function<void(Runtime&)> at_end = {};
  // Maps a step to the number whose gradients it uses.
  std::function<int64_t(int64_t step)> number_of_step = {};
};

struct TrialResult {
  explicit TrialResult(int32_t world)
      : memory(index(world)),
        sent(index(world)),
        sent_slow(index(world)),
        pools(index(world)) {}

  std::string parameters, states;
  std::vector<RankMemory> memory;  // by rank
  std::vector<Groups::Sent> sent;  // by rank, over all steps
  std::vector<Groups::Sent> sent_slow;
  std::vector<Runtime::PoolUse> pools;
  std::vector<StepOutcome> outcomes;  // by step, of rank 0
};

inline void set_initial_parameters(Runtime& runtime) {
  const Plan& plan = runtime.plan();
  for (size_t t = 0; t < plan.model.tensors.size(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    if (!runtime.holds(tensor)) continue;
    std::vector<float> shard(
        static_cast<size_t>(runtime.shard_elements(tensor)));
    make_parameter(plan.model.tensors[t], plan.mesh.tp, runtime.coordinates().t,
                   shard);
    runtime.set_parameter(tensor, shard);
  }
}

// The modules of a rank, in forward order.
inline std::vector<int32_t> modules_of(const Runtime& runtime) {
  std::set<int32_t> modules;
  const Model& model = runtime.plan().model;
  for (int32_t t = 0; t < std::ssize(model.tensors); ++t)
    if (runtime.holds(t))
      modules.insert(module_of(model, model.tensors[static_cast<size_t>(t)]));
  return {modules.begin(), modules.end()};
}

// All modules in forward and then backward order, for each micro-batch.
inline std::vector<int32_t> uses_of(const Runtime& runtime, int micro_batches) {
  const std::vector<int32_t> modules = modules_of(runtime);
  std::vector<int32_t> uses;
  for (int m = 0; m < micro_batches; ++m) {
    uses.insert(uses.end(), modules.begin(), modules.end());
    uses.insert(uses.end(), modules.rbegin(), modules.rend());
  }
  return uses;
}

// Adds one micro-batch's gradient. Micro-batches of one step use the gradients
// of consecutive iterations.
inline void add_gradient(Runtime& runtime, Engine& engine, const Trial& trial,
                         int64_t step, int64_t number, int32_t tensor) {
  const Plan& plan = runtime.plan();
  const Tensor& what = plan.model.tensors[static_cast<size_t>(tensor)];
  const auto [home, num_homes] = home_of(plan, runtime.coordinates(), what);
  const Coordinates& at = runtime.coordinates();
  std::vector<float> gradient(
      static_cast<size_t>(runtime.shard_elements(tensor)));
  make_gradient({trial.gradients, home, num_homes, number}, what, plan.mesh.tp,
                at.t, gradient);
  if (trial.poison) trial.poison(runtime, step, tensor, gradient);
  auto* sum = reinterpret_cast<std::byte*>(runtime.gradient(tensor).data());
  const auto bytes = static_cast<int64_t>(gradient.size() * sizeof(float));
  std::vector<float> before(gradient.size());
  engine.download(reinterpret_cast<std::byte*>(before.data()), sum, bytes);
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] += before[i];
  engine.upload(sum, reinterpret_cast<const std::byte*>(gradient.data()),
                bytes);
}

// Does what a model does in a step: uses and releases every module in forward
// and backward, and adds to every gradient in backward.
inline void make_gradients(Runtime& runtime, Engine& engine, const Trial& trial,
                           int64_t step) {
  const Plan& plan = runtime.plan();
  const int64_t number =
      trial.number_of_step ? trial.number_of_step(step) : step;
  runtime.begin_iteration(uses_of(runtime, trial.micro_batches),
                          trial.micro_batches);
  const std::vector<int32_t> modules = modules_of(runtime);
  for (int64_t micro = 0; micro < trial.micro_batches; ++micro) {
    for (int32_t module : modules) {
      runtime.wait_params(module);
      if (trial.in_use) trial.in_use(runtime, step, module);
      runtime.release_params(module);
    }
    for (auto module = modules.rbegin(); module != modules.rend(); ++module) {
      runtime.wait_params(*module);
      if (trial.in_use) trial.in_use(runtime, step, *module);
      for (size_t n = plan.model.tensors.size(); n-- > 0;) {
        const auto tensor = static_cast<int32_t>(n);
        if (!runtime.holds(tensor) ||
            module_of(plan.model, plan.model.tensors[n]) != *module)
          continue;
        add_gradient(runtime, engine, trial, step, number + 1000 * micro,
                     tensor);
        if (!trial.skip_announcement || !trial.skip_announcement(tensor))
          runtime.grad_ready(tensor);
      }
      runtime.release_params(*module);
    }
  }
}

// Runs one rank of a trial.
inline void run_rank_of_trial(const Trial& trial, Communicator& group,
                              TrialResult& result) {
  const auto engine = make_engine(trial.device);
  Runtime runtime(trial.plan, group, *engine, trial.options);
  set_initial_parameters(runtime);
  if (trial.set_parameters) trial.set_parameters(runtime);
  for (int64_t step = 1; step <= trial.steps; ++step) {
    make_gradients(runtime, *engine, trial, step);
    if (trial.before_step) trial.before_step(runtime, step);
    const StepOutcome outcome = runtime.step(
        {.learning_rate = trial.learning_rate,
         .adamw_learning_rate = trial.adamw_learning_rate,
         .gradient_factor = gradient_factor(trial.gradients, trial.plan.mesh),
         .clip_norm = trial.clip_norm,
         .row_factors = trial.row_factors});
    if (group.rank() == 0) result.outcomes.push_back(outcome);
    runtime.zero_gradients();
  }
  const std::string parameters = runtime.parameter_digest();
  const std::string states = runtime.state_digest();
  const auto r = static_cast<size_t>(group.rank());
  result.memory[r] = runtime.memory();
  result.sent[r] = runtime.sent();
  result.sent_slow[r] = runtime.sent_slow();
  result.pools[r] = runtime.pool_use();
  if (trial.at_end) trial.at_end(runtime);
  if (group.rank() == 0) {
    result.parameters = parameters;
    result.states = states;
  }
}

inline TrialResult run_trial(const Trial& trial) {
  TrialResult result(trial.plan.mesh.world());
  const auto run_on = [&](int num_ranks, const RankFunction& function) {
    if (trial.run_on) return trial.run_on(num_ranks, function);
    run_ranks(num_ranks, trial.ranks, function);
  };
  run_on(trial.plan.mesh.world(),
         [&](Communicator& group) { run_rank_of_trial(trial, group, result); });
  return result;
}

}  // namespace canzona::runtime
