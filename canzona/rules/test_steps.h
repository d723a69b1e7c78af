// Drives a rule in tests: one tensor in host memory, fp64 or fp32.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "canzona/rules/optimizer.h"

namespace canzona::rules {

template <class Real>
class TestTensor {
 public:
  TestTensor(std::unique_ptr<Rule> rule, Dims dims, std::vector<Real> start,
             DecompositionHook* hook = nullptr)
      : rule_(std::move(rule)),
        dims_(std::move(dims)),
        weights(std::move(start)),
        states(make_states(*make_cpu_engine(), *rule_, dims_, 1, memory_)[0]),
        hook_(hook) {}

  // Runs the three stages one by one.
  void step(Engine& engine, const std::vector<Real>& grad, double rate) {
    ++steps;
    const Step now{steps, rate};
    const Shard shard = shard_of(grad);
    const auto count = static_cast<size_t>(shard.count);
    prepared.assign(rule_->facts().needs_whole_matrix() ? count : 0, Real{0});
    update.assign(count, Real{0});
    for (std::vector<Real>& more : others_) more.assign(count, Real{0});
    if (rule_->facts().needs_whole_matrix()) {
      const Run fields[] = {run_of(prepared.data()), run_of(others_[0].data()),
                            run_of(others_[1].data()),
                            run_of(others_[2].data())};
      static_assert(std::size(fields) == kMostFields);
      const ConstRun gathered[] = {fields[0], fields[1], fields[2], fields[3]};
      const auto used = static_cast<size_t>(rule_->facts().gather_fields());
      rule_->prepare(engine, now, shard, {fields, used});
      rule_->transform(engine, now,
                       {.dims = dims_,
                        .count = 1,
                        .fields = {gathered, used},
                        .out = run_of(update.data()),
                        .states = states.with_owner,
                        .phase = phase,
                        .hook = hook_});
    }
    rule_->apply(engine, now, shard, run_of(std::as_const(update).data()));
  }

  // Runs the fused step.
  void step_whole(Engine& engine, const std::vector<Real>& grad, double rate) {
    ++steps;
    const Shard shard = shard_of(grad);
    rule_->step_whole(engine, {steps, rate},
                      {.dims = shard.whole,
                       .shards = {&shard, 1},
                       .owned = states.with_owner,
                       .phase = phase,
                       .hook = hook_});
  }

  const Rule& rule() const { return *rule_; }
  // A copy of a state, by name.
  std::vector<Real> state(const std::string& name) const {
    for (size_t i = 0; i < states.facts.size(); ++i) {
      if (states.facts[i].name != name) continue;
      std::vector<Real> values(static_cast<size_t>(states.facts[i].elements()));
      std::copy_n(reinterpret_cast<const Real*>(states.runs[i].data),
                  values.size(), values.data());
      return values;
    }
    return {};
  }

 private:
  std::unique_ptr<Rule> rule_;
  Dims dims_;
  Arena memory_;
  Arena::Scope whole_life_{memory_};

 public:
  std::vector<Real> weights;
  std::vector<Real> prepared;
  std::vector<Real> update;
  TensorStates states;
  int64_t steps = 0;
  int phase = 0;

 private:
  Shard shard_of(const std::vector<Real>& grad) {
    return {.whole = dims_,
            .count = num_elements(dims_),
            .grad = run_of(grad.data()),
            .weights = run_of(weights.data()),
            .states = states.with_shard};
  }

  std::vector<Real> others_[kMostFields - 1];
  DecompositionHook* hook_;
};

// Small matrices with known results: P[i][j] = ((3i+5j) mod 7 - 3)/4 and
// G_t[i][j] = ((3i+6j+5t+4ij+i²t) mod 13 - 6)/8.
inline std::vector<double> known_weights(int64_t rows, int64_t cols) {
  std::vector<double> values;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      values.push_back(static_cast<double>((3 * i + 5 * j) % 7 - 3) / 4);
  return values;
}
inline std::vector<double> known_gradient(int64_t rows, int64_t cols,
                                          int64_t t) {
  std::vector<double> values;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) {
      const int64_t k = 3 * i + 6 * j + 5 * t + 4 * i * j + i * i * t;
      values.push_back(static_cast<double>(k % 13 - 6) / 8);
    }
  return values;
}

}  // namespace canzona::rules
