// Runs a rule on tensors that one rank holds whole: tensors of equal shape are
// batched, as wide as the engine prefers, and states are in the engines'
// memory. It is the reference for everything distributed, and the driver of
// benchmarks and checks.
//
//   Lanes lanes(2, [] { return make_cpu_engine(); });
//   Optimizer muon(make_rule("muon", {}, DType::kFp32), tensors, lanes);
//   muon.step(1e-3);                   // the device may still be busy
//   if (muon.last_step_skipped()) …    // a gradient was not finite
//
// Given Lanes, it distributes batches over their threads, as CPUs need. Given
// bare engines, the calling thread issues all work, different shapes to
// different engines, and the whole step is repeated work (linalg/engine.h), so
// that a device that can capture it does so once. Neither choice nor the
// batching changes any bits.
//
// A non-finite gradient leaves all weights and states unchanged. The device
// detects it by itself; only the next step waits for the answer. Weights and
// gradients are in the engines' memory, belong to the caller and must not move.
// One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "canzona/linalg/lanes.h"
#include "canzona/rules/rule.h"

namespace canzona {

// Whole tensors of one shape and their memory, stepped by one call of a rule.
//
//   TensorBatch batch(*rule, {2048, 6144});
//   batch.add({.whole = batch.dims(), .count = …, .grad = …, …});
//   batch.step(engine, {t, 1e-3});      // repeated work (linalg/engine.h)
//
// A tensor is one shard, or several pieces in element order. The memory is the
// caller's; only its addresses are copied. The rule must outlive the batch.
// Steps do not use the heap.

// Fills one state of `tensors` tensors, contiguous in the engine's memory, with
// zeros, or with identities where the fact says so.
void fill_initially(Engine& engine, const StateFact& fact, Run run,
                    int64_t tensors);

// The states of one tensor, in the order of the facts.
struct TensorStates {
  std::vector<StateFact> facts;
  std::vector<Run> runs;
  // The same runs, split by where they live.
  std::vector<Run> with_shard;
  std::vector<Run> with_owner;
};
// Allocates and fills the states of `tensors` >= 1 tensors of one shape in the
// arena. Each state is contiguous over all tensors.
std::vector<TensorStates> make_states(Engine& engine, const Rule& rule,
                                      const Dims& dims, size_t tensors,
                                      Arena& arena);

class TensorBatch {
 public:
  TensorBatch(const Rule& rule, Dims dims, int phase = 0)
      : rule_(rule), dims_(std::move(dims)), phase_(phase) {}
  TensorBatch(const TensorBatch&) = delete;
  TensorBatch& operator=(const TensorBatch&) = delete;

  const Dims& dims() const { return dims_; }
  void add(const Shard& shard);
  // Adds a state kept at the owner, contiguous over all tensors.
  void add_owned(Run state) { owned_.push_back(state); }

  // Repeated work: a device that can capture the step does so once.
  void step(Engine& engine, const Step& step) const;
  // Issues every call anew.
  void issue(Engine& engine, const Step& step,
             DecompositionHook* hook = nullptr) const {
    rule_.step_stored(engine, step, tensors(hook));
  }
  WholeTensors tensors(DecompositionHook* hook = nullptr) const {
    return {dims_, shards_, owned_, phase_, hook};
  }

 private:
  const Rule& rule_;
  Dims dims_;
  int phase_;
  std::vector<Run> states_;  // of all shards
  std::vector<Shard> shards_;
  std::vector<Run> owned_;
};

enum class OnNonfinite { kSkipStep, kError, kPropagate };

struct OptimizerSettings {
  OnNonfinite on_nonfinite = OnNonfinite::kSkipStep;
  bool repeats = true;  // false: every call is issued anew
  // The largest batch, in elements: bounds scratch memory, changes no bits.
  int64_t most_elements = int64_t{1} << 28;
};

class Optimizer {
 public:
  struct Tensor {
    std::string name;
    Dims dims;
    Run weights;
    ConstRun grad;
    uint16_t* rounded = nullptr;  // bf16 copy of the weights; null: none
  };

  // The first engine leads; shapes are distributed over all of them.
  Optimizer(std::unique_ptr<Rule> rule, std::vector<Tensor> tensors,
            std::vector<Engine*> engines,
            const OptimizerSettings& settings = {});
  Optimizer(std::unique_ptr<Rule> rule, std::vector<Tensor> tensors,
            Lanes& lanes, const OptimizerSettings& settings = {});
  ~Optimizer();

  // Updates every tensor once. With OnNonfinite::kError throws UsageError
  // naming the tensor whose gradient is not finite.
  void step(double learning_rate);

  // Waits until the last step has checked its gradients.
  bool last_step_skipped();
  // The tensor whose gradient was not finite in the last skipped step.
  const std::string& last_nonfinite() const { return nonfinite_; }
  int64_t steps_done();

  const Rule& rule() const { return *rule_; }
  // In the engines' memory.
  const TensorStates& states(size_t tensor) const { return states_[tensor]; }
  // Continues from states that the caller has written into states().
  void resume_after(int64_t steps) { steps_done_ = steps; }

 private:
  void make_batches();
  void add_batch(const std::vector<size_t>& members);
  void issue(const Step& step);
  void look_at_gradients();
  void step_batches(const Step& step);
  void settle();
  void come_to_rest() noexcept;
  void start_afresh() noexcept;

  std::unique_ptr<Rule> rule_;
  std::vector<Tensor> tensors_;
  std::vector<Engine*> engines_;
  Lanes* lanes_ = nullptr;
  OptimizerSettings settings_;
  Arena memory_;
  Arena::Scope whole_life_{memory_};
  std::vector<TensorStates> states_;
  std::deque<TensorBatch> batches_;     // most work first
  std::vector<Engine*> engine_of_;      // by batch
  std::vector<Engine::Stretch> grads_;  // by tensor
  std::vector<uint8_t> finite_;         // by tensor; written by lanes
  int32_t* flag_ = nullptr;
  std::unique_ptr<Notice> notice_;
  int64_t steps_done_ = 0;
  bool unsettled_ = false;
  bool skipped_ = false;
  std::string nonfinite_;
};

}  // namespace canzona
