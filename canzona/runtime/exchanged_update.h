// Updates of matrices that tensor parallelism cuts: micro-group by micro-group,
//
//   gather(k+2), gather(k+1) ‖ transform(k) ‖ scatter(k−1)
//
// Each round has a slot of its own until its updates are applied; with four
// slots that is the whole pipeline. The couriers move, this thread computes.
#pragma once

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
  struct Moving {
    Work gather, gather_uncut, scatter, scatter_uncut;
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
  void prepare(size_t round);
  void post_gather(size_t round);
  void transform(size_t round);
  void transform_batch(size_t round, const Members& batch);
  void post_scatter(size_t round);
  void apply(size_t round);
  void wait(Work& work);
  Work exchange(Courier& courier, const ExchangeTable& table,
                std::span<std::byte> from, std::span<std::byte> to,
                std::string_view label);

  std::span<std::byte> whole_area(size_t round) const;
  std::span<std::byte> shard_area(size_t round) const;
  // Step number and learning rate for a rule of the set.
  Step now(const RuleSet::Entry& entry) const {
    return {step_, learning_rate_ * entry.learning_rate_factor};
  }
  const RuleSet::Entry& entry_of(int32_t kept) const;
  void copy_in(size_t round, const SlotMatrix& matrix, Run field, int number,
               const Dims& dims);
  void copy_out(size_t round, const SlotMatrix& matrix, Run update,
                const Dims& dims);

  Rank& rank_;
  Publisher& publisher_;
  int num_fields_;
  std::deque<MatrixShards> shards_;            // by kept matrix
  std::vector<Moving> moving_;                 // by round
  std::vector<std::vector<Members>> batches_;  // by round
  std::vector<std::vector<int32_t>> members_;  // kept matrices, by round
  size_t num_sent_ = 0;                        // rounds whose gather is posted
  size_t num_applied_ = 0;  // rounds whose slot is free again
  int64_t step_ = 0;
  double learning_rate_ = 0;
};

}  // namespace canzona
