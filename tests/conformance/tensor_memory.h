// The memory of one tensor that a rule updates: weights, gradient, fields,
// states. It is the engine's memory; numbers are copied to and from it.
//
//   TensorMemory memory(engine, *rule, dims);
//   memory.set(memory.weights(), fixture.tensor("param.0").values);
//   memory.set(memory.grad(), …);
//   memory.step_by_stages(step, hook);
//   std::vector<double> after = memory.values(memory.weights(), count);
//
// Only the engine's thread may use it; engine and rule must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/rules/optimizer.h"
#include "canzona/rules/rule.h"

namespace canzona::tests {

// The limit on weights and states of a replayed tensor together.
inline constexpr int64_t kMaxReplayElements = int64_t{1} << 26;

class TensorMemory {
 public:
  // Initializes states as their facts say. Throws UsageError if there are too
  // many elements.
  TensorMemory(Engine& engine, const Rule& rule, const Dims& dims);

  int64_t count() const { return count_; }
  Run weights() const { return weights_; }
  Run grad() const { return grad_; }
  Run update() const { return update_; }
  std::span<const Run> fields() const { return fields_; }
  std::span<const StateFact> states() const { return states_.facts; }
  Run state(size_t i) const { return states_.runs[i]; }

  // Does one step by prepare, transform and apply. The element-wise stages run
  // on two uneven pieces, as on two ranks.
  void step_by_stages(const Step& step, DecompositionHook* hook) const {
    rule_.step_by_stages(engine_, step, in_two_.tensors(hook), fields_,
                         update_);
  }
  // Does one step as a whole.
  void step_as_one(const Step& step, DecompositionHook* hook) const {
    whole_.issue(engine_, step, hook);
  }

  void set(Run run, std::span<const double> values) const;
  std::vector<double> values(ConstRun run, int64_t count) const;

  // Returns the name of something whose bits differ; empty if nothing does.
  std::string difference(const TensorMemory& other) const;

 private:
  // Adds elements [begin, begin + count) of the tensor.
  void add_piece(TensorBatch& batch, int64_t begin, int64_t count) const;
  bool same_bits(Run run, const TensorMemory& other, Run its_run,
                 int64_t elements) const;

  Engine& engine_;
  const Rule& rule_;
  EngineMemory memory_;
  int64_t count_;
  TensorStates states_;
  Run weights_, grad_, update_;
  std::vector<Run> fields_;
  TensorBatch whole_, in_two_;
};

// Finds where a rule keeps what a fixture names: factor_left of block 3 is a
// matrix in a stack of states.
//
//   auto names = make_state_names(fixture, *rule, dims);
//   auto view = names->find(-1, "factor_left");
//   std::vector<double> factor = gather(memory, *view);

// A part of one state: element (i, j, …) lies at offset + i·strides[0] + ….
struct StateView {
  size_t state = 0;  // index in the list of states
  int64_t offset = 0;
  Dims dims;
  Dims strides;
};

// Returns the elements in row-major order.
std::vector<double> gather(const TensorMemory& memory, const StateView& view);

class StateNames {
 public:
  virtual ~StateNames() = default;
  // Returns nothing if the rule keeps no such state. A tensor that is not cut
  // has one block, number 0.
  virtual std::optional<StateView> find(int64_t block,
                                        std::string_view what) const = 0;
  virtual int64_t num_blocks() const { return 1; }
  virtual int order() const { return 0; }  // axes of a block
  // "left", "right" or a number.
  virtual std::string axis_name(int axis) const;
};

std::unique_ptr<StateNames> make_state_names(const Rule& rule,
                                             const Dims& dims);

}  // namespace canzona::tests
