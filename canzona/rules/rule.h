// The computing side of a rule: three stages on an engine (linalg/engine.h).
//
//   prepare    element-wise on each shard: computes what the owner needs
//   transform  on a batch of whole tensors of equal shape, at their owner
//   apply      element-wise on each shard: updates the weights
//
//   auto rule = make_rule("muon", {{"preset", "moonlight"}}, DType::kFp32);
//   rule->prepare(lane, step, shard, fields);
//   rule->transform(lane, step, batch);
//   rule->apply(lane, step, shard, update);
//
// A rule keeps nothing between calls: the caller owns the states, whose order
// and shapes come from facts(). One rule can therefore serve all threads, each
// with its own engine. Gradients are never written.
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

namespace rules {
class SharedTransform;
}  // namespace rules
namespace rules {
struct TeamSeat;
}

using Dims = std::vector<int64_t>;
int64_t num_elements(const Dims& dims);
std::string to_string(const Dims& dims);  // "3x8x5"

// `step` counts the updates of a tensor from 1.
struct Step {
  int64_t step = 1;
  double learning_rate = 0;
};

// The weights that a rule updates, as they are stored: fp32; fp32 with a bf16
// copy; or, if `remainder` is not null, only the bf16 copy and the 16 bits that
// restore fp32 from it (base/master_bits.h).
struct StoredWeights {
  Run exact{};
  uint16_t* rounded = nullptr;
  uint16_t* remainder = nullptr;
};
// Returns the stored fp32 weights, or restores them into scratch of the arena.
float* restored(Engine& engine, const StoredWeights& weights, int64_t count);
// Stores fp32 weights, which may be the stored ones, in every form there is.
void store(Engine& engine, const StoredWeights& weights, const float* from,
           int64_t count);

// The maximum number of states that a rule keeps with the shard.
inline constexpr size_t kMostShardStates = 4;

// A rank's piece of a tensor: runs of `count` contiguous elements.
struct Shard {
  const Dims& whole;  // the tensor this is a piece of
  int64_t count = 0;
  ConstRun grad{};
  Run weights{};
  std::span<const Run> states{};  // those kept with the shard, in facts' order
  uint16_t* rounded = nullptr;    // bf16 copy of the weights; null: none
  // See StoredWeights. Rules get shards without it; the functions of Rule whose
  // names end in _stored take both kinds.
  uint16_t* remainder = nullptr;
  // A whole matrix may have its rows in groups (linalg/matrix.h), for a rule
  // that steps_whole_in_groups(): the rows of a group, and the elements between
  // groups of the gradient and of all else.
  int64_t group_rows = 0;
  int64_t grad_skip = 0, skip = 0;
};

// Identifies one matrix of a stack or block, for messages and hooks.
struct FactorId {
  int64_t tensor = 0;  // index in the batch
  int64_t block = 0;
  int axis = 0;
};

// Sees the results of decompositions and may replace them: for conformance
// checks and to force failures in tests. Each view is of one matrix.
class DecompositionHook {
 public:
  virtual ~DecompositionHook() = default;
  // The order in which the columns of the old basis are taken.
  virtual void order(const FactorId&, std::span<int64_t>) {}
  // A new basis, one vector per column, and its eigenvalues (1 x n; no data if
  // the rule keeps none). Returning false pretends that the decomposition
  // failed.
  virtual bool basis(const FactorId&, Matrices, Matrices) { return true; }
  // A new inverse root.
  virtual bool inverse_root(const FactorId&, Matrices) { return true; }
  // Matrices and their orthogonal factors, which it may not replace.
  virtual void saw_factor(ConstMatrices, ConstMatrices) {}
};

// Whole tensors of equal shape at their owner, contiguous in memory.
struct Batch {
  const Dims& dims;
  int64_t count = 1;
  std::span<const ConstRun> fields{};  // written by prepare, then gathered
  Run out{};
  std::span<const Run> states{};  // those kept at the owner
  int phase = 0;  // refreshes when (step + phase) hits the period
  DecompositionHook* hook = nullptr;
};

// Whole tensors of equal shape, all on one rank: one shard each, or cut into
// pieces that are listed in element order. `owned` are the states kept at the
// owner, each contiguous over all tensors.
struct WholeTensors {
  const Dims& dims;
  std::span<const Shard> shards{};
  std::span<const Run> owned{};
  int phase = 0;
  DecompositionHook* hook = nullptr;
  // Fields and updates are rounded to bf16 between the stages, as if they had
  // been sent, if the rule steps_whole_as_sent().
  bool as_sent = false;

  int64_t elements() const;  // of all shards
  int64_t count() const;     // of tensors
  bool uncut() const { return count() == std::ssize(shards); }
};

// Upper bound of facts().gather_fields(), the fields that prepare writes.
inline constexpr size_t kMostFields = 4;

class Rule {
 public:
  virtual ~Rule() = default;

  virtual const RuleFacts& facts() const = 0;
  // The type of states, gradients, weights and fields: fp32, or fp64 for
  // checks.
  virtual DType dtype() const = 0;

  // Writes facts().gather_fields() fields of `shard.count` elements each.
  virtual void prepare(Engine& engine, const Step& step, const Shard& shard,
                       std::span<const Run> fields) const = 0;
  virtual void transform(Engine& engine, const Step& step,
                         const Batch& batch) const = 0;
  virtual void apply(Engine& engine, const Step& step, const Shard& shard,
                     ConstRun update) const = 0;

  // The same for shards in any stored form: what is not fp32 is restored into
  // scratch, chunk by chunk, and stored again.
  void prepare_stored(Engine& engine, const Step& step, const Shard& shard,
                      std::span<const Run> fields) const;
  void apply_stored(Engine& engine, const Step& step, const Shard& shard,
                    ConstRun update) const;
  // The same as step_whole().
  void step_stored(Engine& engine, const Step& step,
                   const WholeTensors& tensors) const;
  // False if prepare() does not need the shard's weights.
  virtual bool prepares_from_weights() const { return true; }

  // The part of one member in a transform that a team shares
  // (strips.h), in memory of the arena, which outlives it as the rule
  // and the engine do. Null if the rule, this shape (facts().strips) or the
  // engine cannot.
  virtual std::unique_ptr<rules::SharedTransform> share(
      Engine& engine, Arena& arena, MatrixShape shape,
      const rules::TeamSeat& seat) const;

  // All three stages on whole tensors of one rank, fused where that saves
  // passes over memory. The result is bit-identical to running the stages
  // tensor by tensor.
  virtual void step_whole(Engine& engine, const Step& step,
                          const WholeTensors& tensors) const;
  // True if step_whole on uncut tensors is the same repeated work
  // (linalg/engine.h) wherever the gradients lie.
  virtual bool lets_gradients_move() const { return false; }
  // True if step_whole can round between its stages on this engine.
  virtual bool steps_whole_as_sent(Engine&) const { return false; }
  // True if step_whole takes shards with groups of rows on this engine.
  virtual bool steps_whole_in_groups(Engine&) const { return false; }
  // Runs the stages one after another, in the caller's `fields` and `update`,
  // which hold tensors.elements() each.
  void step_by_stages(Engine& engine, const Step& step,
                      const WholeTensors& tensors, std::span<const Run> fields,
                      Run update) const;

 protected:
  // Runs transform and apply on gathered fields.
  void transform_and_apply(Engine& engine, const Step& step,
                           const WholeTensors& tensors,
                           std::span<const ConstRun> fields, Run update) const;
  Run take(Engine& engine, int64_t elements) const {
    return {engine.arena().take(elements * size_of(dtype())), dtype()};
  }
};

// A rule that stores its facts.
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

// Throws UsageError on an unknown rule, option or value. `dtype` is fp32 or
// fp64. `device` sets the option "device" of a rule that has one, unless it is
// given.
std::unique_ptr<Rule> make_rule(std::string_view name,
                                const RuleOptions& options, DType dtype,
                                std::string_view device = "cpu");

// Weight decay. Each step a weight loses this fraction of itself, with lr the
// learning rate and peak its largest value:
//   decoupled lr·wd   independent wd   palm lr²·wd
//   corrected lr·wd·lr/peak   peak_independent lr·wd/peak
// The form l2 adds wd·p to the gradient instead.
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
