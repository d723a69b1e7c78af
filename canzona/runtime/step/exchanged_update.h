// Updates of matrices that tensor parallelism cuts: micro-group by micro-group,
//
//   gather(k+2), gather(k+1) ‖ transform(k) ‖ scatter(k−1)
//
// Each round has a slot of its own until its updates are applied; with four
// slots that is the whole pipeline. The couriers move, this thread computes.
#pragma once

#include <array>
#include <deque>
#include <vector>

#include "canzona/runtime/publisher.h"
#include "canzona/runtime/rank.h"

namespace canzona {

class ExchangedUpdate {
 public:
  ExchangedUpdate(Rank& rank, Publisher& publisher);

  // Sends the first round off; the rest happens in finish().
  void begin(int64_t step, double learning_rate);
  void finish();

 private:
  using Works = std::array<Work, 2>;  // of cut tensors, and of others
  struct Moving {
    Works gather, scatter;
    std::string_view label;
  };
  struct Members {  // of one batch
    const UpdateBatch* planned = nullptr;
    std::vector<const SlotMatrix*> matrices;
    std::vector<Run> owned;
  };

  // Sends rounds off, up to `last`.
  void send_until(size_t last);
  void apply_until(size_t end);
  void post_gather(size_t round);
  void post_scatter(size_t round);
  // One of the stages below, as repeated work (linalg/engine.h).
  void compute(const char* name, void (ExchangedUpdate::*stage)(size_t),
               size_t round);
  void prepare(size_t round);
  void transform(size_t round);
  void transform_batch(size_t round, const Members& batch);
  void apply(size_t round);
  void wait(Works& works);
  Works exchange(Courier& courier,
                 const std::array<const ExchangeTable*, 2>& tables,
                 std::span<std::byte> from, std::span<std::byte> to,
                 std::string_view label);

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
  std::deque<TensorBatch> kept_;               // by kept matrix
  std::vector<Moving> moving_;                 // by round
  std::vector<std::vector<Members>> batches_;  // by round
  size_t num_sent_ = 0;                        // rounds whose gather is posted
  size_t num_applied_ = 0;  // rounds whose slot is free again
  int64_t step_ = 0;
  double learning_rate_ = 0;
};

}  // namespace canzona
