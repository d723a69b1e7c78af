// A rule on one device: all tensors of one shape in one batch, shapes side by
// side on several engines, and the whole step repeated (linalg/engine.h), so
// that a device which can capture work captures it once.
//
//   DeviceOptimizer muon(make_rule("muon", {}, DType::kFp32, "cuda"), tensors,
//                        engines);
//   muon.step(1e-3);                   // issued; the device may be at work
//   if (muon.last_step_skipped()) …    // a gradient was not finite
//
// A gradient that is not finite is found on the device, which then leaves all
// weights and states as they were; nobody waits for it but the step after.
// Weights and gradients are in the engines' memory, belong to the caller and
// stay where they are. The bits are those of LocalOptimizer on the same engine.
// One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "canzona/rules/local_optimizer.h"

namespace canzona {

class DeviceOptimizer {
 public:
  using Tensor = LocalOptimizer::Tensor;

  struct Settings {
    bool checks_gradients = true;  // else a NaN goes into the weights
    bool repeats = true;           // else every call is issued anew
    // Of one batch: bounds scratch memory, changes no bits.
    int64_t most_elements = int64_t{1} << 28;
  };

  // The first engine leads; the others take shapes of their own.
  DeviceOptimizer(std::unique_ptr<Rule> rule, std::vector<Tensor> tensors,
                  std::vector<Engine*> engines, const Settings& settings);
  ~DeviceOptimizer();

  void step(double learning_rate);

  // Waits for the gradients of the last step to be seen.
  bool last_step_skipped();
  // The tensor whose gradient was not finite in the last skipped step.
  const std::string& last_nonfinite() const { return nonfinite_; }
  int64_t steps_done();

  const Rule& rule() const { return *rule_; }
  // In the engines' memory.
  const TensorStates& states(size_t tensor) const { return states_[tensor]; }
  // Everything but weights and gradients, in bytes.
  int64_t state_bytes() const { return memory_.reserved(); }

 private:
  struct Group;

  void make_groups();
  void add_group(const Dims& dims, std::vector<size_t> members);
  void issue(const Step& step);
  void step_groups(const Step& step);
  void step_group(Engine& engine, const Step& step, const Group& group);
  void settle();
  void come_to_rest() noexcept;
  void start_afresh() noexcept;

  std::unique_ptr<Rule> rule_;
  std::vector<Tensor> tensors_;
  std::vector<Engine*> engines_;
  Settings settings_;
  Arena memory_;
  Arena::Scope whole_life_{memory_};
  std::vector<TensorStates> states_;
  std::vector<Group> groups_;  // most work first
  std::vector<Engine::Stretch> grads_;
  int32_t* flag_ = nullptr;
  std::unique_ptr<Notice> notice_;
  int64_t steps_done_ = 0;
  bool unsettled_ = false;
  bool skipped_ = false;
  std::string nonfinite_;
};

}  // namespace canzona
