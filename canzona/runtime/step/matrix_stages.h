// The stages of a rule on matrices of which several ranks store pieces.
//
//   const MatrixStages stages(stored, engines);
//   stages.prepare(engine, piece, slot);    // gradient → fields in a slot
//   stages.transform(engine, batch, slot);  // fields → updates, whole matrices
//   stages.apply(engine, piece, slot);      // update in a slot → weights
//
// What moves between slots in between is the caller's business, as is where
// pieces are stored: it implements StoredMatrices. A slot has the dtype of the
// wire. Functions may be called from several lanes at once, each with its own
// engine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/schedule/rounds.h"
#include "canzona/plan/schedule/updates.h"
#include "canzona/rules/rule.h"
#include "canzona/runtime/step/step_engines.h"

namespace canzona::runtime {

// Views and copies of rectangles, for those who put matrices together.

Run take_floats(Engine& engine, int64_t count);
// Widens into scratch if the gradient is bf16.
ConstRun widened(Engine& engine, Run gradient, int64_t count);
// Copies elements, converting where one side is bf16.
void copy_or_convert(Engine& engine, Matrices to, ConstMatrices from);
// A rectangle of a matrix whose rows have `cols` elements.
Matrices rectangle_in(Run matrix, const Rectangle& r, int64_t cols);

using ShardStates = Run[kMostShardStates];

// What a rank stores of the matrices that it keeps, and how it updates them in
// this step.
class StoredMatrices {
 public:
  StoredMatrices() = default;
  virtual ~StoredMatrices() = default;
  StoredMatrices(const StoredMatrices&) = delete;
  StoredMatrices& operator=(const StoredMatrices&) = delete;

  virtual const KeptMatrix& matrix(int32_t kept) const = 0;
  const Piece& piece(const SlotPiece& of) const {
    return matrix(of.kept).pieces[index(of.piece)];
  }

  int32_t tensor_of_kept(int32_t kept) const {
    return tensor_of(matrix(kept).matrix);
  }
  const Rule& rule_of(int32_t kept) const {
    return rule_of_tensor(tensor_of_kept(kept));
  }
  Step step_of(int32_t kept) const {
    return step_of_tensor(tensor_of_kept(kept));
  }
  bool has_gradient(int32_t kept) const {
    return tensor_has_gradient(tensor_of_kept(kept));
  }

  // Returns the tensor of one of the plan's matrices.
  virtual int32_t tensor_of(int32_t matrix) const = 0;
  virtual const std::string& name_of(int32_t tensor) const = 0;
  virtual const Rule& rule_of_tensor(int32_t tensor) const = 0;
  virtual Step step_of_tensor(int32_t tensor) const = 0;
  // Returns false if the step leaves the tensor unchanged.
  virtual bool tensor_has_gradient(int32_t tensor) const = 0;
  // From element `at` of a piece on.
  virtual Run gradient(int32_t kept, const Piece& piece, int64_t at) const = 0;
  // Everything except the gradient; `states` is the caller's memory.
  virtual Shard shard(int32_t kept, const Piece& piece, int64_t at,
                      int64_t count, Run* states) const = 0;
  // The states of a batch, at its owner.
  virtual float* owned(const KeptState& state) const = 0;
  // The slot of a round, in the dtype of the wire, and the rooms of teams.
  virtual Run slot(size_t round) const = 0;
  virtual std::byte* rooms() const = 0;
};

// Matrices that are transformed together, and where they lie in their slot.
struct MatrixBatch {
  const UpdateBatch* planned = nullptr;
  std::vector<const SlotMatrix*> matrices;  // by member
  // The slot is this rank's scratch, in which matrices may be transformed.
  bool is_here = false;
};
// Both must outlive the result; `computed` is sorted by kept matrix and block.
std::vector<MatrixBatch> matrix_batches(
    const std::vector<UpdateBatch>& planned,
    const std::vector<SlotMatrix>& computed);

class MatrixStages {
 public:
  // Both must outlive it.
  MatrixStages(const StoredMatrices& stored, const StepEngines& engines)
      : stored_(stored), engines_(engines) {}

  void prepare(Engine& engine, const SlotPiece& piece, Run slot) const;
  void transform(Engine& engine, const MatrixBatch& batch, Run slot) const;
  // Members [begin, end) of a batch, which have the same step number.
  void transform_part(Engine& engine, const MatrixBatch& batch, int64_t begin,
                      int64_t end, Run slot) const;
  void apply(Engine& engine, const SlotPiece& piece, Run slot) const;

  // Calls work(begin, end) for runs of adjacent members with a gradient and the
  // same step number.
  template <class Work>
  void for_each_part(const UpdateBatch& batch, const Work& work) const {
    const auto count = std::ssize(batch.members);
    for (int64_t begin = 0, end = 0; begin < count; begin = end) {
      const int32_t first = batch.members[index(begin)];
      end = begin + 1;
      if (!stored_.has_gradient(first)) continue;
      const int64_t step = stored_.step_of(first).step;
      while (end < count && joins(batch.members[index(end)], step)) ++end;
      work(begin, end);
    }
  }

  // The states of the owner, from member `begin` on.
  class OwnedStates {
   public:
    OwnedStates(const StoredMatrices& stored, const UpdateBatch& batch,
                int64_t begin);
    std::span<const Run> all() const { return {states_, count_}; }

   private:
    Run states_[32];
    size_t count_;
  };

 private:
  // The rule's transform on fields of `count` matrices, from member `begin` on.
  void transform_fields(Engine& engine, const UpdateBatch& batch, int64_t begin,
                        int64_t count, std::span<const ConstRun> fields,
                        Run update) const;
  bool joins(int32_t kept, int64_t step) const {
    return stored_.has_gradient(kept) && stored_.step_of(kept).step == step;
  }
  void clear(Engine& engine, const SlotPiece& piece, Run slot) const;
  void prepare_run(Engine& engine, const SlotPiece& piece, Run slot,
                   Extent run) const;
  void apply_run(Engine& engine, const SlotPiece& piece, Run slot,
                 Extent run) const;
  size_t num_fields(int32_t kept) const;

  const StoredMatrices& stored_;
  const StepEngines& engines_;
};

}  // namespace canzona::runtime
