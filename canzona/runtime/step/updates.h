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
#include "canzona/runtime/step/round_stages.h"
#include "canzona/runtime/zero/bucket_traffic.h"

namespace canzona::runtime {

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
  explicit OwnMatrices(const Rank& rank) : rank_(rank) {}

  void begin(int64_t step, double learning_rate) {
    step_ = step;
    learning_rate_ = learning_rate;
  }

  const KeptMatrix& matrix(int32_t kept) const override {
    return rank_.kept.matrices[index(kept)];
  }
  int32_t tensor_of(int32_t matrix) const override {
    return rank_.part.matrices[index(matrix)].tensor;
  }
  const std::string& name_of(int32_t tensor) const override {
    return rank_.tensor(tensor).name;
  }
  const Rule& rule_of_tensor(int32_t tensor) const override {
    return *rank_.rules.of(tensor).rule;
  }
  // With the step number and learning rate of the tensor's rule.
  Step step_of_tensor(int32_t tensor) const override {
    return {step_,
            learning_rate_ * rank_.rules.of(tensor).learning_rate_factor};
  }
  bool tensor_has_gradient(int32_t) const override { return true; }
  Run gradient(int32_t kept, const Piece& piece, int64_t at) const override;
  Shard shard(int32_t kept, const Piece& piece, int64_t at, int64_t count,
              Run* states) const override;
  float* owned(const KeptState& state) const override {
    return rank_.store.states() + state.first;
  }

  Run slot(size_t round) const override {
    return run_of(
        rank_.store.slot(static_cast<int64_t>(round) % kExchangeSlots));
  }
  std::byte* rooms() const override { return rank_.store.rooms(); }
  int64_t step() const { return step_; }

 private:
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
  void carry_out(size_t entry);
  void exchange(size_t entry);
  void wait(std::optional<Work>& work);
  bool waits_at_once() const {
    return !rank_.options.pipelined || rank_.options.overlap == Overlap::kNone;
  }

  Rank& rank_;
  Publisher& publisher_;
  OwnMatrices stored_;
  RoundStages stages_;
  std::vector<ShownEntry> entries_;         // of the step
  size_t next_ = 0;                         // of these
  std::vector<std::optional<Work>> works_;  // by entry; posted in this step
  std::optional<Work> last_in_rooms_;       // of this step or the last one
};

}  // namespace canzona::runtime
