// A rule on the tensors that one rank has whole: equal shapes in batches, each
// as wide as the engine likes it, states in the engines' memory, a step at a
// time. The reference for everything distributed, and what benchmarks and
// checks drive.
//
//   Lanes lanes(2, [] { return make_cpu_engine(); });
//   Optimizer muon(make_rule("muon", {}, DType::kFp32), tensors, lanes);
//   muon.step(1e-3);                   // a device may still be at work
//   if (muon.last_step_skipped()) …    // a gradient was not finite
//
// Lanes share out the batches among their threads, as CPUs need it. Engines
// alone are served by the calling thread, shapes side by side, and the whole
// step is repeated (linalg/engine.h), so that a device which can capture work
// captures it once. Bits depend neither on that nor on the batches.
//
// A gradient that is not finite leaves all weights and states as they were; a
// device finds that out by itself, and nobody waits for it but the step after.
// Weights and gradients are in the engines' memory, belong to the caller and
// stay where they are. One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "canzona/linalg/lanes.h"
#include "canzona/rules/rule.h"

namespace canzona {

// Whole tensors of one shape and their memory, which a rule steps at once.
//
//   TensorBatch batch(*rule, {2048, 6144});
//   batch.add({.whole = batch.dims(), .count = …, .grad = …, …});
//   batch.step(engine, {t, 1e-3});      // repeated work (linalg/engine.h)
//
// A tensor is one shard, or pieces of it that follow each other in the order of
// its elements. The memory is the caller's; its addresses are copied. The rule
// outlives the batch. Steps take nothing from the heap.

// Zeros, or identities where the fact says so: the states of one kind of
// `tensors` tensors, one after another in the engine's memory.
void fill_initially(Engine& engine, const StateFact& fact, Run run,
                    int64_t tensors);

// The states of one tensor, in the order of the facts.
struct TensorStates {
  std::vector<StateFact> facts;
  std::vector<Run> runs;
  // The same runs, by where they live.
  std::vector<Run> with_shard;
  std::vector<Run> with_owner;
};
// Makes the states of `tensors` tensors of one shape, at least one, in the
// arena and filled: those of a kind lie one after another.
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
  // A state that lives with the owner: of all tensors, one after another.
  void add_owned(Run state) { owned_.push_back(state); }

  // A device that can capture the step captures it once.
  void step(Engine& engine, const Step& step) const;
  // Every call is issued anew.
  void issue(Engine& engine, const Step& step,
             DecompositionHook* hook = nullptr) const {
    rule_.step_whole(engine, step, tensors(hook));
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
  bool repeats = true;  // else every call is issued anew
  // The most elements of one batch: bounds scratch memory, changes no bits.
  int64_t most_elements = int64_t{1} << 28;
};

class Optimizer {
 public:
  struct Tensor {
    std::string name;
    Dims dims;
    Run weights;
    ConstRun grad;
    uint16_t* rounded = nullptr;  // the weights in bf16, if they are wanted
  };

  // The first engine leads; the others take shapes of their own.
  Optimizer(std::unique_ptr<Rule> rule, std::vector<Tensor> tensors,
            std::vector<Engine*> engines,
            const OptimizerSettings& settings = {});
  Optimizer(std::unique_ptr<Rule> rule, std::vector<Tensor> tensors,
            Lanes& lanes, const OptimizerSettings& settings = {});
  ~Optimizer();

  // One update of everything. UsageError, naming the tensor whose gradient is
  // not finite, if the settings say so.
  void step(double learning_rate);

  // Waits for the gradients of the last step to be seen.
  bool last_step_skipped();
  // The tensor whose gradient was not finite in the last skipped step.
  const std::string& last_nonfinite() const { return nonfinite_; }
  int64_t steps_done();

  const Rule& rule() const { return *rule_; }
  // In the engines' memory.
  const TensorStates& states(size_t tensor) const { return states_[tensor]; }
  // Goes on from states that were written into states() from elsewhere.
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
  std::vector<uint8_t> finite_;         // by tensor; lanes write it
  int32_t* flag_ = nullptr;
  std::unique_ptr<Notice> notice_;
  int64_t steps_done_ = 0;
  bool unsettled_ = false;
  bool skipped_ = false;
  std::string nonfinite_;
};

}  // namespace canzona
