// Whole tensors of one shape and their memory, which a rule steps at once.
//
//   TensorBatch batch(*rule, {2048, 6144});
//   batch.add({.whole = batch.dims(), .count = …, .grad = …, …});
//   batch.step(engine, {t, 1e-3});      // repeated work (linalg/engine.h)
//
// A tensor is one shard, or pieces of it that follow each other in the order of
// its elements. The memory is the caller's; its addresses are copied. The rule
// outlives the batch. Steps take nothing from the heap.
#pragma once

#include <vector>

#include "canzona/rules/rule.h"

namespace canzona {

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

}  // namespace canzona
