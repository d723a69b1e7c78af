// A rule on one machine: tensors whole, states in memory, a step at a time. The
// reference for everything distributed, and what benchmarks and checks drive.
//
//   Lanes lanes(2, [] { return make_cpu_engine(); });
//   LocalOptimizer muon(make_rule("muon", {}, DType::kFp32), tensors, lanes);
//   if (!muon.step(1e-3)) …   // a gradient was not finite: nothing changed
//
// Tensors are shared out over the lanes; bits do not depend on how. Weights and
// gradients belong to the caller and stay where they are. One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "canzona/linalg/lanes.h"
#include "canzona/rules/rule.h"

namespace canzona {

enum class OnNonfinite { kSkipStep, kError, kPropagate };

// The states of one tensor, in the order of the facts.
struct TensorStates {
  std::vector<StateFact> facts;
  std::vector<Run> runs;
  // The same runs, by where they live.
  std::vector<Run> with_shard;
  std::vector<Run> with_owner;
};
// Takes memory from the arena and fills it as the facts say.
TensorStates make_states(const Rule& rule, const Dims& dims, Arena& arena);

class LocalOptimizer {
 public:
  struct Tensor {
    std::string name;
    Dims dims;
    Run weights;
    ConstRun grad;
    uint16_t* rounded = nullptr;  // the weights in bf16, if they are wanted
  };

  LocalOptimizer(std::unique_ptr<Rule> rule, std::vector<Tensor> tensors,
                 Lanes& lanes, OnNonfinite policy = OnNonfinite::kSkipStep);

  // One update of everything. False: a gradient was not finite and nothing was
  // changed. UsageError, naming the tensor, if the policy says so.
  bool step(double learning_rate);

  int64_t steps_done() const { return steps_done_; }
  const Rule& rule() const { return *rule_; }
  const TensorStates& states(size_t tensor) const { return states_[tensor]; }
  // Goes on from states that were written into states() from elsewhere.
  void resume_after(int64_t steps) { steps_done_ = steps; }

 private:
  const Tensor* first_nonfinite();

  std::unique_ptr<Rule> rule_;
  std::vector<Tensor> tensors_;
  Lanes& lanes_;
  OnNonfinite policy_;
  Arena memory_;
  Arena::Scope whole_life_{memory_};
  std::vector<TensorStates> states_;
  std::vector<size_t> order_;    // most work first
  std::vector<uint8_t> finite_;  // by tensor
  int64_t steps_done_ = 0;
};

}  // namespace canzona
