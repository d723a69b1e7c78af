// The computing side of a rule: three stages on an engine (linalg/engine.h).
//
//   prepare    element-wise, where the shard lives: what the owner needs
//   transform  on whole tensors, a batch of equal shapes, at the owner
//   apply      element-wise, where the shard lives
//
//   auto rule = make_rule("muon", {{"preset", "moonlight"}}, DType::kFp32);
//   rule->prepare(lane, step, shard, fields);
//   rule->transform(lane, step, batch);
//   rule->apply(lane, step, shard, update);
//
// A rule keeps nothing between calls: states are memory of the caller, in the
// order and of the shapes that facts() tells. So one rule serves all threads,
// each with an engine of its own. Gradients are never written.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/linalg/engine.h"
#include "canzona/rules/facts.h"

namespace canzona {

class SharedTransform;  // strips.h
class StripTransform;   // strips.h
struct TeamSeat;

using Dims = std::vector<int64_t>;
int64_t num_elements(const Dims& dims);
std::string to_string(const Dims& dims);  // "3x8x5"

// `step` counts the updates of a tensor from 1.
struct Step {
  int64_t step = 1;
  double learning_rate = 0;
};

// A rank's piece of a tensor: flat runs of `count` elements.
struct Shard {
  const Dims& whole;  // the tensor that it is a piece of
  int64_t count = 0;
  ConstRun grad{};
  Run weights{};
  std::span<const Run> states{};  // that live with the shard, in facts' order
  uint16_t* rounded = nullptr;    // the weights in bf16, if they are wanted
};

// One matrix of a stack or block, for messages and hooks.
struct FactorId {
  int64_t tensor = 0;  // place in the batch
  int64_t block = 0;
  int axis = 0;
};

// Sees what decompositions give and may replace it: for conformance checks and
// for forcing failures in tests. Views are of one matrix.
class DecompositionHook {
 public:
  virtual ~DecompositionHook() = default;
  // The order in which columns of the old basis are taken.
  virtual void order(const FactorId&, std::span<int64_t>) {}
  // A new basis, one vector per column, and its eigenvalues (1 x n; no data
  // where the rule keeps none). False: pretend that it failed.
  virtual bool basis(const FactorId&, Matrices, Matrices) { return true; }
  // A new inverse root.
  virtual bool inverse_root(const FactorId&, Matrices) { return true; }
};

// Whole tensors of equal shape at their owner, one after another in memory.
struct Batch {
  const Dims& dims;
  int64_t count = 1;
  std::span<const ConstRun> fields{};  // what prepare wrote, gathered
  Run out{};
  std::span<const Run> states{};  // that live with the owner
  int phase = 0;  // refreshes happen where (step + phase) meets the period
  DecompositionHook* hook = nullptr;
};

// Whole tensors of equal shape, all on one rank: a shard each, or cut into
// pieces that follow each other in the order of the tensors' elements. `owned`
// are the states that live with the owner, those of the tensors one after
// another.
struct WholeTensors {
  const Dims& dims;
  std::span<const Shard> shards{};
  std::span<const Run> owned{};
  int phase = 0;
  DecompositionHook* hook = nullptr;

  int64_t elements() const;  // of all shards
  int64_t count() const;     // of tensors
  // True if each shard is one tensor.
  bool uncut() const { return count() == std::ssize(shards); }
};

// The most fields that prepare writes (facts().gather_fields()).
inline constexpr size_t kMostFields = 4;

class Rule {
 public:
  virtual ~Rule() = default;

  virtual const RuleFacts& facts() const = 0;
  // fp32, or fp64 for checks: of states, gradients, weights and fields.
  virtual DType dtype() const = 0;

  // Writes facts().gather_fields() fields of `shard.count` elements each.
  virtual void prepare(Engine& engine, const Step& step, const Shard& shard,
                       std::span<const Run> fields) const = 0;
  virtual void transform(Engine& engine, const Step& step,
                         const Batch& batch) const = 0;
  virtual void apply(Engine& engine, const Step& step, const Shard& shard,
                     ConstRun update) const = 0;

  // The part of one member in a transform that a team shares
  // (strips.h), in memory of the arena, which outlives it as the rule
  // and the engine do. Null if the rule, this shape (facts().strips) or the
  // engine cannot.
  virtual std::unique_ptr<SharedTransform> share(Engine& engine, Arena& arena,
                                                 MatrixShape shape,
                                                 const TeamSeat& seat) const;
  // The transform of a matrix whose strips come one by one (strips.h);
  // the rule and the engine outlive it. Null if the rule, this shape or the
  // engine cannot.
  virtual std::unique_ptr<StripTransform> by_strips(Engine& engine,
                                                    MatrixShape shape) const;

  // All three on whole tensors of one rank, fused where that saves passes over
  // memory; the bits are those of the three stages, tensor by tensor.
  virtual void step_whole(Engine& engine, const Step& step,
                          const WholeTensors& tensors) const;
  // True if that, on tensors that are uncut, is the same repeated work
  // (linalg/engine.h) wherever gradients lie.
  virtual bool lets_gradients_move() const { return false; }
  // The stages one after another, in `fields` and `update` of the caller, which
  // hold tensors.elements() each.
  void step_by_stages(Engine& engine, const Step& step,
                      const WholeTensors& tensors, std::span<const Run> fields,
                      Run update) const;

 protected:
  // The last two, on gathered fields.
  void transform_and_apply(Engine& engine, const Step& step,
                           const WholeTensors& tensors,
                           std::span<const ConstRun> fields, Run update) const;
  Run take(Engine& engine, int64_t elements) const {
    return {engine.arena().take(elements * size_of(dtype())), dtype()};
  }
};

// A rule that keeps its facts.
template <class Facts>
class RuleOf : public Rule {
 public:
  RuleOf(const RuleOptions& options, DType dtype)
      : facts_(options), dtype_(dtype) {}
  const RuleFacts& facts() const final { return facts_; }
  DType dtype() const final { return dtype_; }

 protected:
  const Facts facts_;
  const DType dtype_;
};

// UsageError names an unknown rule, option or value. dtype is fp32 or fp64. A
// rule that knows the option "device" gets this one, if none is given.
std::unique_ptr<Rule> make_rule(std::string_view name,
                                const RuleOptions& options, DType dtype,
                                std::string_view device = "cpu");

// Weight decay, with lr the learning rate and peak its largest value. A weight
// loses, each step,
//   decoupled lr·wd   independent wd   palm lr²·wd
//   corrected lr·wd·lr/peak   peak_independent lr·wd/peak
// of itself; l2 adds wd·p to the gradient instead.
struct DecayOptions {
  std::string form = "decoupled";
  std::string order = "before";  // or "after" the update
  double weight_decay = 0;
  double peak_learning_rate = 0;
};
// p = (p·keep_before - step·u)·keep_after with step = learning_rate·factor.
Apply apply_coefficients(const DecayOptions& decay, const Step& step,
                         double factor);
// Returns the multiple of the weights that is added to the gradient:
// weight_decay if the form is l2, else 0.
double l2_factor(const DecayOptions& decay);
// Returns the fraction of a weight that one step takes away.
double decay_fraction(const DecayOptions& decay, double learning_rate);

}  // namespace canzona
