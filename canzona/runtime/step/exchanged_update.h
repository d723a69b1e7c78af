// Updates of matrices that tensor parallelism cuts: micro-group by micro-group,
//
//   gather(k+2), gather(k+1) ‖ transform(k) ‖ scatter(k−1)
//
// Each round has a slot of its own until its updates are applied; with four
// slots that is the whole pipeline. Of the first and the last round a matrix
// may come and leave strip by strip (strip_update.h). The entries of the
// schedule (plan/schedule/rank_entries.h) say in which order: this thread walks
// them, computes, and has the couriers move.
#pragma once

#include <deque>
#include <vector>

#include "canzona/runtime/publisher.h"
#include "canzona/runtime/rank.h"
#include "canzona/runtime/step/strip_update.h"
#include "canzona/runtime/step/team_update.h"

namespace canzona {

class ExchangedUpdate {
 public:
  ExchangedUpdate(Rank& rank, Publisher& publisher);

  // The entries before AdamW's elements, which send the first round off; the
  // rest happens in finish().
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
  // A stage of an entry, as repeated work (linalg/engine.h).
  template <class Stage>
  void compute(const ShownEntry& shown, const Stage& stage);
  // A stage of a matrix that a team shares.
  void share(const ShownEntry& shown);
  // One of a matrix whose strips go one by one.
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
