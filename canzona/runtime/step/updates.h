// The updates of a step: those that need no exchange, and those of matrices
// that tensor parallelism cuts.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <vector>

#include "canzona/plan/schedule/rounds.h"
#include "canzona/runtime/rank.h"
#include "canzona/runtime/step/matrix_stages.h"
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

// The matrices that a rank keeps of its own layout.
class OwnMatrices : public StoredMatrices {
 public:
  explicit OwnMatrices(const Rank& rank)
      : StoredMatrices(rank.kept.matrices), rank_(rank) {}

  void begin(int64_t step, double learning_rate) {
    step_ = step;
    learning_rate_ = learning_rate;
  }

  const Rule& rule_of(int32_t kept) const override {
    return *entry_of(kept).rule;
  }
  // With the step number and learning rate of the matrix's rule.
  Step step_of(int32_t kept) const override {
    return {step_, learning_rate_ * entry_of(kept).learning_rate_factor};
  }
  bool has_gradient(int32_t) const override { return true; }
  Run gradient(int32_t kept, const Piece& piece, int64_t at) const override;
  Shard shard(int32_t kept, const Piece& piece, int64_t at, int64_t count,
              Run* states) const override;
  float* owned(const KeptState& state) const override {
    return rank_.store.states() + state.first;
  }

 private:
  const RuleSet::Entry& entry_of(int32_t kept) const {
    return rank_.rules.of(rank_.tensor_of(matrix(kept)));
  }

  const Rank& rank_;
  int64_t step_ = 0;
  double learning_rate_ = 0;
};

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
  void carry_out(const ShownEntry& shown);
  void exchange(const ShownEntry& shown);
  // Runs a stage of an entry as repeated work (linalg/engine.h).
  template <class Stage>
  void compute(const ShownEntry& shown, const Stage& stage);
  // Runs a stage of a matrix that a team shares.
  void share(const ShownEntry& shown);
  void prepare(size_t round);
  void transform(size_t round, int32_t segment);
  void apply(size_t round);
  bool waits_at_once() const {
    return !rank_.options.pipelined || rank_.options.overlap == Overlap::kNone;
  }
  void wait(Works& works);

  std::span<std::byte> whole_area(size_t round) const;
  std::span<std::byte> shard_area(size_t round) const;
  Run slot_of(size_t round) const { return run_of(moving_[round].slot); }

  Rank& rank_;
  Publisher& publisher_;
  OwnMatrices stored_;
  const MatrixStages stages_;
  TeamUpdate teams_;
  std::vector<ShownEntry> entries_;                // of the step
  size_t next_ = 0;                                // of these
  std::vector<Moving> moving_;                     // by round
  std::vector<std::vector<MatrixBatch>> batches_;  // by round
};

}  // namespace canzona
