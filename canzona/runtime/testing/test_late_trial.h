// A few steps of a plan on asynchronous engines, for tests: the trial itself
// never waits for a device, so that ordering that the runtime forgets shows in
// the results. The same trial on plain CPU engines gives the correct result.
//
//   LateTrial trial{.plan = plan};
//   const std::string right = run_late_trial(trial);
//   trial.device = {.seed = 3, .eagerness = 0.5};
//   EXPECT_EQ(run_late_trial(trial), right);
//
// Gradients are numbers in the engine's memory before the first step, plus a
// fraction of the parameters in the module's slot; the parameters of every use
// of a module are also copied and included in the result.
//
// With modelled links time advances only when nothing else can happen, and the
// device's times are those of the same clock.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "canzona/comm/thread/test_clock.h"
#include "canzona/linalg/engine.h"
#include "canzona/linalg/test_late_engine.h"
#include "canzona/linalg/test_remote_device.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime {

struct LateTrial {
  Plan plan;
  RuntimeOptions options = {};
  int steps = 3;
  int micro_batches = 1;
  double clip_norm = 0.5;
  std::optional<LateDevice::Options> device = {};
  std::string engine = "cpu";  // if there is no late device
  // Instead of both: an engine that implements nothing but what it must.
  bool defaults_alone = false;
  // Called before a gradient is written to the engine's memory.
  std::function<void(const Coordinates& at, int64_t step, int32_t tensor,
                     std::span<float> gradient)>
      poison = {};
  // Called on every rank with the outcome of a step, before the next is issued.
  std::function<void(int rank, int64_t step, const StepOutcome&)> outcome = {};
  // By rank: the number of engine calls that waited, from the first gradient of
  // the first step to the last step.
  std::vector<int64_t>* waits = nullptr;
  std::optional<LinkModel> link = {};          // only with a late device
  std::vector<RuntimeTimes>* times = nullptr;  // by rank, at the end
};

// The clock that a trial's ranks and device share.
class LateClock {
 public:
  explicit LateClock(const LateTrial& trial) {
    if (trial.device) device.emplace(options_of(trial));
    if (!trial.link) return;
    ranks.world.link = trial.link;
    if (!trial.device) return;  // real time
    ranks.world.clocks.assign(static_cast<size_t>(trial.plan.mesh.world()),
                              &clock_);
    ranks.world.on_pacer = [this](LanePacer& pacer) { pacer_ = &pacer; };
  }

  RunOptions ranks;
  std::optional<LateDevice> device;

 private:
  LateDevice::Options options_of(const LateTrial& trial) {
    LateDevice::Options options = *trial.device;
    if (!trial.link) return options;
    options.idle = [this] { pacer_.load()->pass_time(); };
    options.now = [this] { return clock_.now().count(); };
    return options;
  }

  SharedTestClock clock_;
  std::atomic<LanePacer*> pacer_ = nullptr;
};

// One rank's trainer.
class LateTrainer {
 public:
  LateTrainer(const LateTrial& trial, Runtime& runtime, Engine& engine)
      : trial_(trial), runtime_(runtime), engine_(engine), memory_(engine) {
    set_initial_parameters(runtime);
    const Model& model = trial.plan.model;
    for (int64_t step = 1; step <= trial.steps; ++step)
      for (int64_t micro = 0; micro < trial.micro_batches; ++micro)
        for (int32_t t = 0; t < std::ssize(model.tensors); ++t)
          gradients_.push_back(runtime.holds(t) ? make(step, micro, t) : Run{});
  }

  void run(int64_t step) {
    runtime_.begin_iteration(uses_of(runtime_, trial_.micro_batches),
                             trial_.micro_batches);
    const std::vector<int32_t> modules = modules_of(runtime_);
    for (int64_t micro = 0; micro < trial_.micro_batches; ++micro) {
      for (int32_t module : modules) {
        runtime_.wait_params(module);
        look(module);
        runtime_.release_params(module);
      }
      for (auto m = modules.rbegin(); m != modules.rend(); ++m) {
        runtime_.wait_params(*m);
        look(*m);
        for_tensors(*m, [&](int32_t t) { backward(step, micro, t); });
        runtime_.release_params(*m);
      }
    }
  }

  // A hash of all parameters that were seen.
  uint64_t seen() {
    uint64_t hash = 17;
    for (const auto& [run, count] : seen_)
      for (const float value : memory_.get<float>(run.data, count))
        hash = bits_at(hash, std::bit_cast<uint32_t>(value));
    return hash;
  }

 private:
  Run make(int64_t step, int64_t micro, int32_t t) {
    const Tensor& tensor = trial_.plan.model.tensors[static_cast<size_t>(t)];
    const Coordinates& at = runtime_.coordinates();
    const auto [home, num_homes] = home_of(trial_.plan, at, tensor);
    std::vector<float> values(static_cast<size_t>(runtime_.shard_elements(t)));
    make_gradient({GradientKind::kRandom, home, num_homes, step + 1000 * micro},
                  tensor, trial_.plan.mesh.tp, at.t, values);
    if (trial_.poison) trial_.poison(at, step, t, values);
    return memory_.put(values);
  }
  Run gradient(int64_t step, int64_t micro, int32_t t) const {
    const auto n = std::ssize(trial_.plan.model.tensors);
    return gradients_[static_cast<size_t>(
        ((step - 1) * trial_.micro_batches + micro) * n + t)];
  }
  bool is_rounded() const {
    return trial_.plan.options.parameters == DType::kBf16;
  }
  static Matrices row(std::byte* data, int64_t count) {
    return matrices(reinterpret_cast<float*>(data), 1, count);
  }

  template <class Use>
  void for_tensors(int32_t module, Use use) {
    const Model& model = trial_.plan.model;
    for (int32_t t = 0; t < std::ssize(model.tensors); ++t)
      if (runtime_.holds(t) &&
          module_of(model, model.tensors[static_cast<size_t>(t)]) == module)
        use(t);
  }
  std::byte* bytes_of_parameter(int32_t t) {
    return is_rounded()
               ? reinterpret_cast<std::byte*>(runtime_.bf16_parameter(t).data())
               : reinterpret_cast<std::byte*>(runtime_.parameter(t).data());
  }
  void look(int32_t module) {
    for_tensors(module, [&](int32_t t) {
      // Four-byte words: with bf16, a number at either end may be left out.
      std::byte* first = bytes_of_parameter(t);
      const auto skipped =
          static_cast<int64_t>(reinterpret_cast<uintptr_t>(first) % 4);
      const int64_t bytes = runtime_.shard_elements(t) * (is_rounded() ? 2 : 4);
      const int64_t count = (bytes - skipped) / 4;
      if (count <= 0) return;
      const Run copy = memory_.take(count);
      engine_.copy(row(copy.data, count), row(first + skipped, count));
      seen_.push_back({copy, count});
    });
  }
  void backward(int64_t step, int64_t micro, int32_t t) {
    const int64_t count = runtime_.shard_elements(t);
    auto* sum = reinterpret_cast<std::byte*>(runtime_.gradient(t).data());
    if (count > 0) {
      engine_.axpby(row(sum, count), 1,
                    row(gradient(step, micro, t).data, count), 1);
      if (!is_rounded())
        engine_.axpby(row(sum, count), 0x1p-6,
                      row(bytes_of_parameter(t), count), 1);
    }
    runtime_.grad_ready(t);
  }

  const LateTrial& trial_;
  Runtime& runtime_;
  Engine& engine_;
  EngineMemory memory_;
  std::vector<Run> gradients_;
  std::vector<std::pair<Run, int64_t>> seen_;
};

inline int64_t waits_of(const Engine& engine) {
  const auto* late = dynamic_cast<const LateEngine*>(&engine);
  return late == nullptr ? 0 : late->waits();
}

inline std::unique_ptr<Engine> make_trial_engine(
    const LateTrial& trial, std::optional<LateDevice>& device) {
  if (trial.defaults_alone)
    return std::make_unique<MinimalEngine>(1, MinimalEngine::Reach::kAnybody);
  if (device) return std::make_unique<LateEngine>(*device);
  return make_engine(trial.engine);
}

// Digests of parameters and states, and of what every rank has seen.
inline std::string run_late_trial(const LateTrial& trial) {
  const int world = trial.plan.mesh.world();
  LateClock clock(trial);
  std::optional<LateDevice>& device = clock.device;
  std::vector<uint64_t> seen(static_cast<size_t>(world));
  std::string digests;
  run_ranks(world, clock.ranks, [&](Communicator& group) {
    const std::unique_ptr<Engine> engine = make_trial_engine(trial, device);
    Runtime runtime(trial.plan, group, *engine, trial.options);
    LateTrainer trainer(trial, runtime, *engine);
    const int64_t waits = waits_of(*engine);
    const auto tell = [&](int64_t step) {
      if (trial.outcome && step > 0)
        trial.outcome(group.rank(), step, runtime.outcome());
    };
    for (int64_t step = 1; step <= trial.steps; ++step) {
      trainer.run(step);
      tell(step - 1);
      runtime.issue_step({.learning_rate = 0.01,
                          .gradient_factor = gradient_factor(
                              GradientKind::kRandom, trial.plan.mesh),
                          .clip_norm = trial.clip_norm});
      runtime.zero_gradients();
    }
    if (trial.waits != nullptr)
      trial.waits->at(static_cast<size_t>(group.rank())) =
          waits_of(*engine) - waits;
    tell(trial.steps);
    const std::string found =
        cat(runtime.parameter_digest(), " ", runtime.state_digest());
    seen[static_cast<size_t>(group.rank())] = trainer.seen();
    if (trial.times != nullptr)
      trial.times->at(static_cast<size_t>(group.rank())) = runtime.times();
    if (group.rank() == 0) digests = found;
  });
  for (const uint64_t number : seen) digests += cat(" ", number);
  return digests;
}

}  // namespace canzona::runtime
