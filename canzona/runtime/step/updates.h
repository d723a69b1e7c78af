// The updates of a step: those that need no exchange, and those of matrices
// that tensor parallelism cuts.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <vector>

#include "canzona/plan/schedule/rounds.h"
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
// slots that is the whole pipeline. The entries of the schedule
// (plan/schedule/entries.h) say in which order: this thread walks them,
// computes, and has the couriers move.

class ExchangedUpdate {
 public:
  ExchangedUpdate(Rank& rank, Publisher& publisher);

  // Executes the entries before AdamW's elements, which post the first round;
  // finish() executes the rest.
  void begin(int64_t step, double learning_rate);
  void finish();

 private:
  using Works = std::array<Work, Round::kNumTables>;
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
  std::deque<TensorBatch> kept_;               // by kept matrix
  std::vector<ShownEntry> entries_;            // of the step
  size_t next_ = 0;                            // of these
  std::vector<Moving> moving_;                 // by round
  std::vector<std::vector<Members>> batches_;  // by round
  int64_t step_ = 0;
  double learning_rate_ = 0;
};

}  // namespace canzona
