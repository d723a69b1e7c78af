#include "canzona/runtime/testing/test_fault_trials.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/thread/thread_world.h"
#include "canzona/linalg/cpu/cpu_engine.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime {
namespace {

using Clock = std::chrono::steady_clock;
// Steps in which a fault that waits for a refresh comes, and those until the
// next one, in which a rank is missed that had no part in an exchange.
constexpr int64_t kStepsBeyond = 6;
constexpr int kPlaces = 3;  // between the stages of a step

// Shared by the ranks: the fault, and which ranks have ended.
class Scene {
 public:
  explicit Scene(const FaultTrial& trial) : trial_(trial) {
    outcome_.words.resize(static_cast<size_t>(trial.plan.mesh.world()));
    outcome_.seconds.resize(outcome_.words.size());
  }

  const FaultTrial& trial() const { return trial_; }
  const FaultOutcome& outcome() const { return outcome_; }

  void begin_fault(int64_t step, const std::string& stage,
                   std::string_view label = {}) {
    const std::lock_guard lock(mutex_);
    outcome_.happened = true;
    outcome_.stage = stage;
    outcome_.label = label;
    outcome_.step = step;
    fault_ = Clock::now();
  }
  void lost(int rank, const std::string& words) {
    const std::lock_guard lock(mutex_);
    const auto r = static_cast<size_t>(rank);
    outcome_.words[r] = words;
    outcome_.seconds[r] =
        std::chrono::duration<double>(Clock::now() - fault_).count();
  }
  void ended() {
    const std::lock_guard lock(mutex_);
    ++num_ended_;
    ended_.notify_all();
  }
  // Gives up after so long that the test has failed anyway.
  void wait_for_others() {
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, std::chrono::seconds(30),
                    [&] { return num_ended_ + 1 >= trial_.plan.mesh.world(); });
  }

 private:
  const FaultTrial& trial_;
  std::mutex mutex_;
  std::condition_variable ended_;
  FaultOutcome outcome_;
  Clock::time_point fault_;
  int num_ended_ = 0;
};

// Counts calls in the steps before the trial's, the first of which has some on
// every rank, and triggers at one of those numbers in the trial's step. Any
// thread.
class Moment {
 public:
  explicit Moment(const FaultTrial& trial)
      : faulty_step_(trial.step), moment_(trial.moment) {}

  void begin_step(int64_t step) {
    const std::lock_guard lock(mutex_);
    if (step_ > 0) most_in_step_ = std::max(most_in_step_, num_);
    step_ = step;
    num_ = 0;
  }
  // Returns the step if this is the moment, once.
  std::optional<int64_t> comes() {
    const std::lock_guard lock(mutex_);
    const uint64_t number = num_++;
    if (over_ || !is_time(number)) return std::nullopt;
    over_ = true;
    return step_;
  }

 private:
  // Steps differ in their refreshes: a moment past the end of one step falls
  // into the next.
  bool is_time(uint64_t number) const {
    if (step_ != faulty_step_) return step_ > faulty_step_;
    return number >= moment_ % std::max<uint64_t>(most_in_step_, 1);
  }

  const int64_t faulty_step_;
  const uint64_t moment_;
  std::mutex mutex_;
  bool over_ = false;
  int64_t step_ = 0;
  uint64_t num_ = 0, most_in_step_ = 0;
};

// Triggers before the victim's collectives.
class StumblingGate final : public Gate {
 public:
  explicit StumblingGate(Scene& scene)
      : scene_(scene), moment_(scene.trial()) {}

  void begin_step(int64_t step) { moment_.begin_step(step); }

  void pass(std::string_view group, Operation operation, std::string_view label,
            int rank) override {
    const FaultTrial& trial = scene_.trial();
    if (rank != trial.victim || !is_in_operation(trial.kind)) return;
    if (!group.starts_with(trial.at) || !label.starts_with(trial.label)) return;
    const std::optional<int64_t> step = moment_.comes();
    if (!step) return;
    scene_.begin_fault(
        *step, cat(group.substr(0, group.find(' ')), " ", to_string(operation)),
        label);
    if (trial.kind == Fault::kThrowInOperation)
      throw std::runtime_error("no more paper");
    scene_.wait_for_others();
  }
  void open_for_good() noexcept override {}

 private:
  Scene& scene_;
  Moment moment_;
};

// Fails at one of its calls.
class StumblingEngine final : public CpuEngine {
 public:
  StumblingEngine(Scene& scene, bool stumbles)
      : CpuEngine(usable_bf16_kernels().front()),
        scene_(scene),
        stumbles_(stumbles && is_in_stage(scene.trial().kind)),
        moment_(scene.trial()) {}

  void begin_step(int64_t step) { moment_.begin_step(step); }

  void find_nonfinite(int32_t* first, std::span<const Stretch> runs) override {
    call("grad_ready");
    CpuEngine::find_nonfinite(first, runs);
  }
  uint32_t largest_bits(std::span<const Stretch> runs) override {
    call("gradient check");
    return CpuEngine::largest_bits(runs);
  }
  void momentum(const MomentumStage& stage, int64_t count) override {
    call("prepare");
    CpuEngine::momentum(stage, count);
  }
  Algebra& algebra(DType dtype) override {
    call("transform");
    return CpuEngine::algebra(dtype);
  }
  void eigh(Matrices a, Matrices values, std::span<bool> succeeded) override {
    call("decompose");
    CpuEngine::eigh(a, values, succeeded);
  }
  void qr(Matrices a, std::span<bool> succeeded) override {
    call("decompose");
    CpuEngine::qr(a, succeeded);
  }
  void copy(Matrices to, ConstMatrices from) override {
    call("slots");
    CpuEngine::copy(to, from);
  }
  void apply(Run weights, ConstRun update, const Apply& coefficients,
             int64_t count, uint16_t* rounded) override {
    call("apply");
    CpuEngine::apply(weights, update, coefficients, count, rounded);
  }
  void synchronize() override {
    call("gather, scatter or publish");
    CpuEngine::synchronize();
  }

 private:
  void call(std::string_view stage) {
    if (!stumbles_ || !stage.starts_with(scene_.trial().at)) return;
    const std::optional<int64_t> step = moment_.comes();
    if (!step) return;
    scene_.begin_fault(*step, std::string(stage));
    if (scene_.trial().kind == Fault::kThrow)
      throw std::runtime_error("no more paper");
    scene_.wait_for_others();
  }

  Scene& scene_;
  const bool stumbles_;
  Moment moment_;
};

class FaultRank {
 public:
  FaultRank(Scene& scene, StumblingGate& gate, Communicator& world)
      : scene_(scene),
        gate_(gate),
        is_victim_(world.rank() == scene.trial().victim),
        engine_(scene, is_victim_),
        runtime_(scene.trial().plan, world, engine_, scene.trial().runtime) {
    trial_.plan = scene.trial().plan;
  }

  void run() {
    for (int64_t step = 1; step <= scene_.trial().step + kStepsBeyond; ++step) {
      engine_.begin_step(step);
      if (is_victim_) gate_.begin_step(step);
      if (leaves(step, 0, "before gradients")) return;
      make_gradients(runtime_, engine_, trial_, step);
      if (leaves(step, 1, "before the step")) return;
      runtime_.step({.learning_rate = 0.01});
      if (leaves(step, 2, "before wait_params")) return;
      if (trial_.plan.options.zero.sizes.z3 == 1) runtime_.wait_params(0);
      runtime_.wait_all_params();
    }
  }

 private:
  bool leaves(int64_t step, uint64_t place, const char* stage) {
    const FaultTrial& trial = scene_.trial();
    const bool now = is_victim_ && trial.kind == Fault::kLeave &&
                     step == trial.step && place == trial.moment % kPlaces;
    if (now) scene_.begin_fault(step, stage);
    return now;
  }

  Scene& scene_;
  StumblingGate& gate_;
  bool is_victim_;
  StumblingEngine engine_;
  Runtime runtime_;
  Trial trial_;
};

}  // namespace

FaultOutcome run_fault(const FaultTrial& trial) {
  Scene scene(trial);
  StumblingGate gate(scene);
  RunOptions options;
  options.world.gate = &gate;
  options.communicator.deadline = trial.deadline;
  try {
    run_ranks(trial.plan.mesh.world(), options, [&](Communicator& world) {
      try {
        FaultRank(scene, gate, world).run();
      } catch (const PeerLost& error) {
        scene.lost(world.rank(), error.what());
        scene.ended();
        throw;
      }
      scene.ended();
    });
  } catch (const std::exception&) {
    // Reported by the ranks.
  }
  return scene.outcome();
}

}  // namespace canzona::runtime
