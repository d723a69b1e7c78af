// One step of Shampoo on one whole tensor: statistics, refresh, filtered
// gradient, grafting, direction.
//
//   TensorStep(engine, options, layout, step, batch, place).run();
//
// Lives for one call.
#pragma once

#include "canzona/linalg/engine.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/shampoo/layout.h"
#include "canzona/rules/shampoo/options.h"

namespace canzona {

class TensorStep {
 public:
  // The tensor at `place` in the batch.
  TensorStep(Engine& engine, const ShampooOptions& options,
             const ShampooLayout& layout, int64_t step, const Batch& batch,
             int64_t place);

  void run();

 private:
  // Steps of a tensor with a phase run behind, so that none of its refreshes
  // comes before the first step that is meant for one.
  int64_t scheduled_step() const;
  bool refreshes() const;
  bool warms_up() const;

  Run take(int64_t elements);
  Run state(int number, int64_t elements) const;
  Matrices in_stack(int number, const FactorPlace& place) const;
  Matrices factor(const FactorPlace& place) const;
  Matrices inv_root(const FactorPlace& place) const;
  // The block's elements side by side: where they are, or in scratch memory.
  ConstRun packed(const TensorBlock& block, ConstRun tensor);

  void accumulate(const TensorBlock& block);
  void refresh(const TensorBlock& block);
  ConstRun filter();
  ConstRun graft(ConstRun filtered, Run room);
  void precondition(const TensorBlock& block, ConstRun filtered,
                    ConstRun grafted);

  Engine& engine_;
  const ShampooOptions& options_;
  const ShampooLayout& layout_;
  const Blocking& blocking_;
  int64_t step_;
  const Batch& batch_;
  int64_t place_;
  int64_t num_blocks_;
  int64_t elements_;
  DType dtype_;
  ConstRun grad_;
  Run out_;
};

}  // namespace canzona
