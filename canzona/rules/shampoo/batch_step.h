// One step of Shampoo on some of the whole tensors of a batch: statistics,
// refresh, filtered gradient, grafting, direction.
//
//   BatchStep(engine, options, layout, step, batch, {begin, size}).run();
//
// Lives for one call. Without a refresh nothing is read back from the engine,
// so the host does not wait for a device.
#pragma once

#include "canzona/linalg/engine.h"
#include "canzona/rules/refresh.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/shampoo/facts.h"

namespace canzona::rules {

// Computes new inverse roots for factors of one axis; on failure keeps the old
// root and counts the failure (refresh.h). At most kMostTogether.
struct RootRefresh {
  RefreshSite site;
  ConstMatrices factor;
  double correction = 1;  // factors are divided by this
  // … and then by the square root of their trace, at least the root's epsilon.
  bool scales_by_trace = false;
  InversePower power;
  Matrices root;
};

PerTensor<Outcome> refresh_roots(Engine& engine, const RootRefresh& task,
                                 const RootOptions& options,
                                 DecompositionHook* hook);

// The tensors [begin, begin + count) of a batch; at most kMostTogether.
struct BatchPart {
  int64_t begin = 0;
  int64_t count = 1;
};

// A moving average that starts at zero, or a sum where beta is 1.
struct Average {
  double keep;
  double add;
  double correction;  // the sum of its weights after t steps
};
Average average(double beta, int64_t t);
// The average that factors keep.
Average factor_average(const ShampooOptions& options, int64_t step);

class BatchStep {
 public:
  BatchStep(Engine& engine, const ShampooOptions& options,
            const ShampooLayout& layout, int64_t step, const Batch& batch,
            BatchPart part);

  void run();

  // The parts of a step; each requires an open scope of the engine's arena.
  void add_statistics_of_blocks();
  // Refreshes the factors of an axis.
  void refresh(int axis);
  void direction();

 private:
  // Factors of one length along an axis that are refreshed together: a range of
  // stack places, for a range of tensors.
  struct Chunk;

  bool warms_up() const;

  // Scratch for `elements` elements of each tensor.
  Run take(int64_t elements);
  // The state from the first tensor on; it has `elements` elements per tensor.
  Run state(int number, int64_t elements) const;
  // One matrix per tensor.
  Matrices in_stacks(int number, const FactorPlace& place) const;
  Matrices factor(const FactorPlace& place) const;
  Matrices inv_root(const FactorPlace& place) const;
  // `elements` elements of each tensor as one row.
  ConstMatrices flat(ConstRun run, int64_t elements) const;
  Matrices flat(Run run, int64_t elements) const;
  // The block's elements, contiguous: in place, or copied to scratch memory.
  ConstRun packed(const TensorBlock& block, ConstRun tensor);

  void accumulate(const TensorBlock& block);
  // The block's gradient times the roots of all other axes.
  ConstRun kl_grad(const TensorBlock& block, int axis, ConstRun grad);
  // batch_step.cc
  void refresh_kind(int axis, size_t kind);
  void refresh_chunk(const Chunk& chunk);
  template <class Copy>
  void for_each_counter(const Chunk& chunk, Matrices together,
                        const Copy& copy);
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
  BatchPart part_;
  int64_t num_blocks_;
  int64_t elements_;  // of one tensor
  DType dtype_;
  ConstRun grad_;
  Run out_;
};

}  // namespace canzona::rules
