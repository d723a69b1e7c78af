// One step of Shampoo on some whole tensors of a batch: statistics, refresh,
// filtered gradient, grafting, direction.
//
//   BatchStep(engine, options, layout, step, batch, {begin, size}).run();
//
// Lives for one call. Without a refresh nothing comes back from the engine, so
// that a device need not be waited for.
#pragma once

#include "canzona/linalg/engine.h"
#include "canzona/rules/refresh_policy.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/shampoo/facts.h"

namespace canzona {

// New inverse roots for factors of one axis; or the old one and a failure
// counted, as refresh_policy.h says. At most kMostTogether.

struct RootRefresh {
  RefreshSite site;
  ConstMatrices factor;
  double correction = 1;  // factors are divided by this
  // … and by the root of their trace then, at least the root's epsilon.
  bool scales_by_trace = false;
  InversePower power;
  Matrices root;
};

void refresh_roots(Engine& engine, const RootRefresh& task,
                   const RootOptions& options, DecompositionHook* hook);

// The tensors [begin, begin + count) of a batch; at most kMostTogether.
struct BatchPart {
  int64_t begin = 0;
  int64_t count = 1;
};

// A moving average that starts at zero, or a sum where beta is 1.
struct Average {
  double keep;
  double add;
  double correction;  // what its weights add up to after t steps
};
Average average(double beta, int64_t t);

class BatchStep {
 public:
  BatchStep(Engine& engine, const ShampooOptions& options,
            const ShampooLayout& layout, int64_t step, const Batch& batch,
            BatchPart part);

  void run();

 private:
  // Factors of one length along an axis that are refreshed together: some of
  // the stack of each of some tensors.
  struct Chunk;

  // Steps of a tensor with a phase run behind, so that none of its refreshes
  // comes before the first step that is meant for one.
  int64_t scheduled_step() const;
  bool refreshes() const;
  bool warms_up() const;

  // Room for so many elements of each tensor.
  Run take(int64_t elements);
  // From the first tensor on, a state having so many elements of each.
  Run state(int number, int64_t elements) const;
  // One per tensor.
  Matrices in_stacks(int number, const FactorPlace& place) const;
  Matrices factor(const FactorPlace& place) const;
  Matrices inv_root(const FactorPlace& place) const;
  // So many elements of each tensor as one row.
  ConstMatrices flat(ConstRun run, int64_t elements) const;
  Matrices flat(Run run, int64_t elements) const;
  // The blocks' elements side by side: where they are, or in scratch memory.
  ConstRun packed(const TensorBlock& block, ConstRun tensor);

  // The average of the factors.
  Average statistics() const;
  void accumulate(const TensorBlock& block);
  // The block's gradient times the roots of all axes but this one.
  ConstRun kl_grad(const TensorBlock& block, int axis, ConstRun grad);
  void refresh();
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

}  // namespace canzona
