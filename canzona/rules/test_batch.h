// Drives a rule in tests on tensors of one shape in the memory of any engine.
// Values are copied from and to the host through the engine.
//
//   TestBatch batch(engine, *rule, {6, 5}, 3);
//   batch.step({g0, g1, g2}, 0.01);
//   EXPECT_EQ(batch.weights(1), …);
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/rules/optimizer.h"
#include "canzona/rules/runs.h"

namespace canzona::rules {

class TestBatch {
 public:
  using Values = std::vector<float>;

  TestBatch(Engine& engine, const Rule& rule, Dims dims, int64_t count,
            DecompositionHook* hook = nullptr)
      : engine_(engine),
        rule_(rule),
        dims_(std::move(dims)),
        count_(count),
        each_(num_elements(dims_)),
        hook_(hook),
        memory_(engine),
        states_(make_states(engine, rule, dims_, static_cast<size_t>(count),
                            memory_.arena())),
        batch_(rule, dims_) {
    weights_ = memory_.zeros(count_ * each_);
    grads_ = memory_.zeros(count_ * each_);
    update_ = memory_.zeros(count_ * each_);
    for (int i = 0; i < rule.facts().gather_fields(); ++i)
      fields_.push_back(memory_.zeros(count_ * each_));
    for (int64_t i = 0; i < count_; ++i)
      batch_.add({.whole = dims_,
                  .count = each_,
                  .grad = advanced(grads_, i * each_),
                  .weights = advanced(weights_, i * each_),
                  .states = states_[static_cast<size_t>(i)].with_shard});
    for (Run state : states_[0].with_owner) batch_.add_owned(state);
  }

  // Runs the three stages one by one; one gradient per tensor.
  void step(const std::vector<Values>& grads, double rate) {
    const Step now = begin(grads, rate);
    const WholeTensors tensors = batch_.tensors();
    if (rule_.facts().needs_whole_matrix()) {
      for (int64_t i = 0; i < count_; ++i) {
        std::vector<Run> fields;
        for (Run field : fields_) fields.push_back(advanced(field, i * each_));
        rule_.prepare(engine_, now, tensors.shards[static_cast<size_t>(i)],
                      fields);
      }
      const std::vector<ConstRun> gathered(fields_.begin(), fields_.end());
      rule_.transform(engine_, now,
                      {.dims = dims_,
                       .count = count_,
                       .fields = gathered,
                       .out = update_,
                       .states = tensors.owned,
                       .phase = 0,
                       .hook = hook_});
    }
    for (int64_t i = 0; i < count_; ++i)
      rule_.apply(engine_, now, tensors.shards[static_cast<size_t>(i)],
                  advanced(update_, i * each_));
  }

  // Runs the fused step.
  void step_whole(const std::vector<Values>& grads, double rate) {
    batch_.issue(engine_, begin(grads, rate), hook_);
  }

  Values weights(int64_t tensor) {
    return memory_.get<float>(advanced(weights_, tensor * each_).data, each_);
  }
  // All states of one tensor, by name.
  std::map<std::string, Values> states(int64_t tensor) {
    std::map<std::string, Values> all;
    const TensorStates& own = states_[static_cast<size_t>(tensor)];
    for (size_t i = 0; i < own.facts.size(); ++i)
      all[own.facts[i].name] =
          memory_.get<float>(own.runs[i].data, own.facts[i].elements());
    return all;
  }
  int64_t steps() const { return steps_; }

 private:
  Step begin(const std::vector<Values>& grads, double rate) {
    for (int64_t i = 0; i < count_; ++i)
      memory_.set(advanced(grads_, i * each_), grads[static_cast<size_t>(i)]);
    return {++steps_, rate};
  }

  Engine& engine_;
  const Rule& rule_;
  Dims dims_;
  int64_t count_;
  int64_t each_;
  DecompositionHook* hook_;
  EngineMemory memory_;
  std::vector<TensorStates> states_;
  TensorBatch batch_;
  Run weights_, grads_, update_;
  std::vector<Run> fields_;
  int64_t steps_ = 0;
};

}  // namespace canzona::rules
