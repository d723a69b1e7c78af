// Driving a rule in tests on tensors of one shape in the memory of any engine,
// which is reached by the engine alone: what comes here is a copy.
//
//   TestBatch batch(engine, *rule, {6, 5}, 3);
//   batch.step({g0, g1, g2}, 0.01);
//   EXPECT_EQ(batch.weights(1), …);
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "canzona/rules/rule.h"
#include "canzona/rules/runs.h"

namespace canzona {

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
        memory_(engine.memory()),
        facts_(rule.facts().tensor_states(dims_)) {
    weights_ = take(each_);
    grads_ = take(each_);
    update_ = take(each_);
    for (int i = 0; i < rule.facts().gather_fields(); ++i)
      fields_.push_back(take(each_));
    for (const StateFact& fact : facts_) {
      states_.push_back(take(fact.elements()));
      begin_state(states_.back(), fact);
      if (fact.lives == Lives::kWithOwner) owned_.push_back(states_.back());
    }
  }

  // The three stages one by one; one gradient per tensor.
  void step(const std::vector<Values>& grads, double rate) {
    const Step now = begin(grads, rate);
    const std::vector<Shard> shards = make_shards();
    if (rule_.facts().needs_whole_matrix()) {
      for (int64_t i = 0; i < count_; ++i) {
        std::vector<Run> fields;
        for (Run field : fields_) fields.push_back(advanced(field, i * each_));
        rule_.prepare(engine_, now, shards[static_cast<size_t>(i)], fields);
      }
      const std::vector<ConstRun> gathered(fields_.begin(), fields_.end());
      rule_.transform(engine_, now,
                      {.dims = dims_,
                       .count = count_,
                       .fields = gathered,
                       .out = update_,
                       .states = owned_,
                       .phase = 0,
                       .hook = hook_});
    }
    for (int64_t i = 0; i < count_; ++i)
      rule_.apply(engine_, now, shards[static_cast<size_t>(i)],
                  advanced(update_, i * each_));
  }

  // All at once.
  void step_whole(const std::vector<Values>& grads, double rate) {
    const Step now = begin(grads, rate);
    const std::vector<Shard> shards = make_shards();
    rule_.step_whole(engine_, now,
                     {.dims = dims_,
                      .shards = shards,
                      .owned = owned_,
                      .phase = 0,
                      .hook = hook_});
  }

  Values weights(int64_t tensor) { return values(weights_, each_, tensor); }
  // All of one tensor, by name.
  std::map<std::string, Values> states(int64_t tensor) {
    std::map<std::string, Values> all;
    for (size_t i = 0; i < facts_.size(); ++i)
      all[facts_[i].name] = values(states_[i], facts_[i].elements(), tensor);
    return all;
  }
  int64_t steps() const { return steps_; }

 private:
  static constexpr int64_t kSize = sizeof(float);

  Run take(int64_t elements) {
    const Run run{memory_.take(count_ * elements * kSize), DType::kFp32};
    engine_.set_zero(run.data, count_ * elements * kSize);
    return run;
  }
  void put(Run run, const Values& values) {
    engine_.upload(run.data, reinterpret_cast<const std::byte*>(values.data()),
                   std::ssize(values) * kSize);
  }
  Values values(Run run, int64_t elements, int64_t tensor) {
    Values here(static_cast<size_t>(elements));
    engine_.download(reinterpret_cast<std::byte*>(here.data()),
                     advanced(run, tensor * elements).data, elements * kSize);
    return here;
  }
  void begin_state(Run run, const StateFact& fact) {
    if (fact.initially == Initially::kZero || fact.elements() == 0) return;
    const int64_t d = fact.shape.back();
    for (int64_t i = 0; i < count_ * fact.elements(); i += d * d)
      engine_.set_identity(as_matrices(advanced(run, i), d, d), 1.0);
  }

  Step begin(const std::vector<Values>& grads, double rate) {
    for (int64_t i = 0; i < count_; ++i)
      put(advanced(grads_, i * each_), grads[static_cast<size_t>(i)]);
    return {++steps_, rate};
  }
  std::vector<Shard> make_shards() {
    shard_states_.assign(static_cast<size_t>(count_), {});
    std::vector<Shard> shards;
    for (int64_t i = 0; i < count_; ++i) {
      std::vector<Run>& states = shard_states_[static_cast<size_t>(i)];
      for (size_t s = 0; s < facts_.size(); ++s)
        if (facts_[s].lives == Lives::kWithShard)
          states.push_back(advanced(states_[s], i * facts_[s].elements()));
      shards.push_back({.whole = dims_,
                        .count = each_,
                        .grad = advanced(grads_, i * each_),
                        .weights = advanced(weights_, i * each_),
                        .states = states});
    }
    return shards;
  }

  Engine& engine_;
  const Rule& rule_;
  Dims dims_;
  int64_t count_;
  int64_t each_;
  DecompositionHook* hook_;
  Arena memory_;
  Arena::Scope whole_life_{memory_};
  std::vector<StateFact> facts_;
  Run weights_, grads_, update_;
  std::vector<Run> fields_, states_, owned_;
  std::vector<std::vector<Run>> shard_states_;
  int64_t steps_ = 0;
};

}  // namespace canzona
