// The memory of one tensor that a rule steps: weights, gradient, fields,
// states. It is the engine's; numbers are copied there and back.
//
//   TensorMemory memory(engine, *rule, dims);
//   memory.set(memory.weights(), fixture.tensor("param.0").values);
//   memory.set(memory.grad(), …);
//   step_by_stages(engine, *rule, step, memory, hook);
//   std::vector<double> after = memory.values(memory.weights(), count);
//
// One thread at a time, that of the engine, which must outlive it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/rules/rule.h"

namespace canzona {

// Weights and states of a replayed tensor, together.
inline constexpr int64_t kMaxReplayElements = int64_t{1} << 26;

class TensorMemory {
 public:
  // States as their facts say they begin. UsageError if they are too many.
  TensorMemory(Engine& engine, const Rule& rule, const Dims& dims);

  const Dims& dims() const { return dims_; }
  int64_t count() const { return count_; }
  Run weights() const { return weights_; }
  Run grad() const { return grad_; }
  Run update() const { return update_; }
  std::span<const Run> fields() const { return fields_; }
  std::span<const StateFact> states() const { return facts_; }
  Run state(size_t i) const { return states_[i]; }
  // Those that live with the shard, or with the owner, in facts' order.
  std::span<const Run> shard_states() const { return shard_states_; }
  std::span<const Run> owned_states() const { return owned_states_; }

  // Elements [begin, begin + count) of the tensor; `states` keeps the runs.
  Shard shard(int64_t begin, int64_t count, std::vector<Run>& states) const;

  void set(Run run, std::span<const double> values) const;
  std::vector<double> values(ConstRun run, int64_t count) const;

  // The name of what differs in its bits; empty if nothing does.
  std::string difference(const TensorMemory& other) const;

 private:
  Run take(int64_t elements);
  void begin_state(Run run, const StateFact& fact);
  bool same_bits(Run run, const TensorMemory& other, Run its_run,
                 int64_t elements) const;

  Engine& engine_;
  Arena arena_;
  Arena::Scope scope_;
  Dims dims_;
  DType dtype_;
  int64_t count_;
  std::vector<StateFact> facts_;
  Run weights_, grad_, update_;
  std::vector<Run> fields_, states_, shard_states_, owned_states_;
};

// `run` from its element `begin` on.
Run part_of(Run run, int64_t begin);

// One step by prepare, transform and apply. The element-wise stages run on two
// uneven pieces, as on two ranks.
void step_by_stages(Engine& engine, const Rule& rule, const Step& step,
                    const TensorMemory& memory, DecompositionHook* hook);
// One step as a whole.
void step_as_one(Engine& engine, const Rule& rule, const Step& step,
                 const TensorMemory& memory, DecompositionHook* hook);

}  // namespace canzona
