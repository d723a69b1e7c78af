// Everything a rank knows while it steps on the caller's memory; internal to
// this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/linalg/matrix.h"
#include "canzona/plan/storage/storage_schedule.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/runs.h"
#include "canzona/runtime/step/gradient_check.h"
#include "canzona/runtime/step/matrix_stages.h"

namespace canzona::runtime {

// Memory of a caller for steps (caller_step.h): all of it is the engine's
// memory, none of it is owned here.

// Addresses must not change until other memory is bound. Tensors are those of
// the plan; null where this rank stores nothing of one.
struct CallerMemory {
  std::vector<std::byte*> weights;  // by tensor, in the tensor's dtype
  // By tensor: of bf16 tensors the masters, fp32 or uint16_t as the plan says.
  std::vector<std::byte*> masters;
  std::vector<float*> states;  // by number in RankSchedule::memories
  std::byte* slots = nullptr;  // RankSchedule::slot_elements of the wire
  std::byte* rooms = nullptr;  // RankSchedule::room_bytes
  int64_t* numbers = nullptr;  // GradientCheck::kNumNumbers of them
};

// The gradient of what a rank stores of a tensor. Null: the tensor has no
// gradient in this step and is left unchanged; where the rank stores nothing of
// a tensor that has a gradient, any other address. The address may change with
// each step; only CallerStep::clip() writes to it.
struct CallerGradient {
  std::byte* data = nullptr;
  DType dtype = DType::kFp32;  // or kBf16
};

// Returns the same number for rules with the same options in force.
uint64_t hash_of_options(const Rule& rule);

struct CallerRank : StepEngines, StoredMatrices {
  CallerRank(const StoragePlan& the_plan, int32_t rank,
             std::vector<Engine*> the_engines, Lanes* the_lanes);

  const StoragePlan& plan;
  const RankSchedule schedule;
  std::vector<RuleOptions> options;          // by group
  std::vector<std::unique_ptr<Rule>> rules;  // by group
  std::vector<uint64_t> hashes;              // of options in force, by group
  CallerMemory memory;
  std::vector<CallerGradient> gradients;  // by tensor
  std::vector<int64_t> steps;             // by tensor
  std::vector<double> rates;              // by group

  const CutTensor& tensor(int32_t t) const { return plan.tensors[index(t)]; }
  DType wire() const { return plan.options.wire; }
  Run slot_of(const Round& round) const {
    return advanced(Run{memory.slots, wire()}, round.slot_at);
  }
  // New weights in transit, whatever the wire.
  Run wide_slot(const Round& round, int64_t at) const {
    return {advanced(slot_of(round), at).data, DType::kFp32};
  }

  // The weights of a tensor from an element of the rank's storage on, as a rule
  // updates them.
  StoredWeights weights(int32_t t, int64_t at) const;
  Run stored_gradient(int32_t t, int64_t at) const;
  // Everything except the gradient; `states` is the caller's memory.
  Shard stored_shard(int32_t t, const Dims& whole, int64_t at, int64_t count,
                     Run* states) const;

  // The matrices, as the stages of a step see them.
  const KeptMatrix& matrix(int32_t kept) const override {
    return schedule.kept[index(kept)];
  }
  int32_t tensor_of(int32_t matrix) const override {
    return plan.matrices[index(matrix)].tensor;
  }
  const std::string& name_of(int32_t t) const override {
    return tensor(t).name;
  }
  const Rule& rule_of_tensor(int32_t t) const override {
    return *rules[index(tensor(t).group)];
  }
  Step step_of_tensor(int32_t t) const override {
    return {steps[index(t)], rates[index(tensor(t).group)]};
  }
  bool tensor_has_gradient(int32_t t) const override {
    return gradients[index(t)].data != nullptr;
  }
  Run gradient(int32_t kept, const Piece& piece, int64_t at) const override {
    return stored_gradient(tensor_of_kept(kept), piece.gradient + at);
  }
  Shard shard(int32_t kept, const Piece& piece, int64_t at, int64_t count,
              Run* states) const override {
    return stored_shard(tensor_of_kept(kept), matrix(kept).dims,
                        piece.parameter + at, count, states);
  }
  float* owned(const KeptState& state) const override {
    return memory.states[index(state.memory)] + state.first;
  }
  Run slot(size_t round) const override {
    return slot_of(schedule.rounds[round]);
  }
  std::byte* rooms() const override { return memory.rooms; }
};

// The gradients of a step on the caller's memory, as the check sees them: a
// rank looks at all that it stores. They may lie elsewhere in every step.
class CallerGradients {
 public:
  explicit CallerGradients(const CallerRank& rank);

  // Valid until the next call.
  const GradientRuns& runs();
  // Encodes which tensors have gradients, and the learning rates and options of
  // the groups.
  int64_t likeness() const;

 private:
  struct Part {
    int32_t tensor = 0;
    Extent extent;
  };

  std::vector<Part> parts_of(
      const std::vector<std::vector<Extent>>& extents) const;

  const CallerRank& rank_;
  std::vector<Part> looked_, counted_;
  GradientRuns runs_;
};

}  // namespace canzona::runtime
