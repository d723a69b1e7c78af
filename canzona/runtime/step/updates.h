// The updates of a step: those that need no exchange, and those of matrices
// that tensor parallelism cuts.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "canzona/plan/schedule/rounds.h"
#include "canzona/rules/runs.h"
#include "canzona/rules/strips.h"
#include "canzona/runtime/rank.h"
#include "canzona/runtime/step/team_update.h"
#include "canzona/runtime/zero/bucket_traffic.h"

namespace canzona {

// Updates that need no exchange: matrices that are whole on one rank (tp = 1),
// and AdamW's tensors, of which every rank updates its own run of elements.
// Batches of matrices are updated in the order of the next forward, so that
// parameters can be sent while later ones are computed. If AdamW is the plan's
// rule, matrices are among AdamW's tensors.

class LocalUpdate {
 public:
  LocalUpdate(Rank& rank, Publisher& publisher);

  void run(int64_t step, double learning_rate);

 private:
  struct Batch {
    Batch(Rank& rank, const UpdateBatch& planned);

    const UpdateBatch& planned;
    const RuleSet::Entry& entry;
    TensorBatch tensors;
    std::string_view label;
  };

  Rank& rank_;
  Publisher& publisher_;
  ShownEntry shown_;
  std::deque<Batch> batches_;
};

struct ElementRates {
  double matrices = 0;
  double others = 0;
};

class ElementUpdate {
 public:
  ElementUpdate(Rank& rank, Publisher& publisher);

  void run(int64_t step, const ElementRates& rates);

 private:
  Rank& rank_;
  Publisher& publisher_;
  ShownEntry shown_;
  std::map<int32_t, TensorBatch> batches_;  // by rule
};

// Updates of matrices that tensor parallelism cuts: micro-group by micro-group,
//
//   gather(k+2), gather(k+1) ‖ transform(k) ‖ scatter(k−1)
//
// Each round has a slot of its own until its updates are applied; with four
// slots that is the whole pipeline. Of the first and the last round a matrix
// may come and leave strip by strip (StripUpdate). The entries of the
// schedule (plan/schedule/entries.h) say in which order: this thread walks
// them, computes, and has the couriers move.

// Views of rectangles, in assembled matrices and packed in a slot.

// A rectangle of a matrix with sides `dims`.
inline Matrices in_matrix(Run matrix, const SlotRectangle& r,
                          const std::vector<int64_t>& dims) {
  Matrices view =
      as_matrices(advanced(matrix, r.first_row * dims[1] + r.first_col),
                  r.num_rows, r.num_cols);
  view.row_stride = dims[1];
  return view;
}

// The same rectangle in a slot.
inline Matrices in_slot(float* slot, const SlotRectangle& r, int64_t field) {
  return matrices(slot + r.at + field * r.field_stride, r.num_rows, r.num_cols);
}

// Updates a matrix of this rank whose strips arrive and leave one by
// one (plan/schedule/routes.h), in the first and in the last round:
//
//   strips.sum(round, strip, slot);        // the strip is in the slot
//   strips.iterate(round);                 // all strips are
//   strips.multiply(round, strip, slot);   // the slot may be sent
//
// Between the first and the last of these calls a scope of the engine's arena
// stays open, within which the rank's other matrices are transformed.
class StripUpdate {
 public:
  // Throws UsageError if the rank's engine cannot compute a matrix by strips.
  explicit StripUpdate(Rank& rank);

  void sum(size_t round, int strip, float* slot);
  void iterate(size_t round);
  void multiply(size_t round, int strip, float* slot);

 private:
  // The matrix of a round; without one, `transform` is null.
  struct OfRound {
    const StripMatrix* planned = nullptr;
    const std::vector<int64_t>* dims = nullptr;
    std::unique_ptr<StripTransform> transform;
  };

  void begin(OfRound& of);

  Rank& rank_;
  std::vector<OfRound> rounds_;
  // These belong to the current matrix.
  std::optional<Arena::Scope> scope_;
  Run matrix_{};         // assembled; later holds its update
  size_t num_left_ = 0;  // strips not multiplied yet
};

class ExchangedUpdate {
 public:
  ExchangedUpdate(Rank& rank, Publisher& publisher);

  // Executes the entries before AdamW's elements, which post the first round;
  // finish() executes the rest.
  void begin(int64_t step, double learning_rate);
  void finish();

 private:
  using Works = std::vector<Work>;  // by table of the round
  struct Moving {
    float* slot = nullptr;
    Works gather, scatter;
  };
  struct Members {  // of one batch
    const UpdateBatch* planned = nullptr;
    std::vector<const SlotMatrix*> matrices;
    std::vector<Run> owned;
  };

  void carry_out(const ShownEntry& shown);
  void exchange(const ShownEntry& shown);
  // Runs a stage of an entry as repeated work (linalg/engine.h).
  template <class Stage>
  void compute(const ShownEntry& shown, const Stage& stage);
  // Runs a stage of a matrix that a team shares.
  void share(const ShownEntry& shown);
  // Runs a stage of a matrix that is exchanged strip by strip.
  void take_strip(const ShownEntry& shown);
  void prepare(size_t round);
  void prepare_parts(size_t round, const SlotPiece& piece);
  void transform(size_t round, int32_t segment);
  void transform_batch(size_t round, const Members& batch);
  void apply(size_t round);
  void apply_parts(size_t round, const SlotPiece& piece);
  bool waits_at_once() const {
    return !rank_.options.pipelined || rank_.options.overlap == Overlap::kNone;
  }
  void wait(Works& works);
  void wait(Work& work);

  std::span<std::byte> whole_area(size_t round) const;
  std::span<std::byte> shard_area(size_t round) const;
  // Step number and learning rate for a rule of the set.
  Step now(const RuleSet::Entry& entry) const {
    return {step_, learning_rate_ * entry.learning_rate_factor};
  }
  const RuleSet::Entry& entry_of(int32_t kept) const;
  const Shard& shard_of(const SlotPiece& piece) const {
    return kept_[static_cast<size_t>(piece.kept)]
        .tensors()
        .shards[static_cast<size_t>(piece.piece)];
  }

  Rank& rank_;
  Publisher& publisher_;
  int num_fields_;
  TeamUpdate teams_;
  StripUpdate strips_;
  std::deque<TensorBatch> kept_;               // by kept matrix
  std::vector<ShownEntry> entries_;            // of the step
  size_t next_ = 0;                            // of these
  std::vector<Moving> moving_;                 // by round
  std::vector<std::vector<Members>> batches_;  // by round
  int64_t step_ = 0;
  double learning_rate_ = 0;
};

}  // namespace canzona
