// What a courier does with a bucket in one turn where one collective is not
// enough: sums over groups and then over replicas, through a staging area where
// tensors lie whole; new parameters through a staging area.
#pragma once

#include <vector>

#include "canzona/comm/courier_task.h"
#include "canzona/runtime/zero/staged_bucket.h"

namespace canzona {

// Sums a bucket's gradients into the part that this rank keeps.
class SumBucket final : public CourierTask {
 public:
  SumBucket(Rank& rank, size_t bucket);
  void run(Communicator& communicator, const Call& call) override;
  std::string_view name() const override { return "sum"; }

 private:
  void sum(Communicator& communicator, const Region& region, const Call& call);
  std::span<std::byte> bytes_of(const Extent& extent) const;

  Rank& rank_;
  const RankBucket& bucket_;
  StagedBucket staged_;
  float* base_;
};

// Sends this rank's new parameters of a bucket to all that keep them whole.
class PublishBucket final : public CourierTask {
 public:
  PublishBucket(Rank& rank, size_t bucket);
  void run(Communicator& communicator, const Call& call) override;
  std::string_view name() const override { return "publish"; }

 private:
  void gather(Communicator& communicator, const Region& region,
              const std::vector<int64_t>& bytes, const Call& call);

  Rank& rank_;
  const RankBucket& bucket_;
  StagedBucket staged_;
  std::vector<int64_t> matrix_bytes_, element_bytes_;
};

Reduction reduction_of(GradientWire wire);
// Of counts of elements.
std::vector<int64_t> bytes_of_counts(std::vector<int64_t> counts,
                                     int64_t element);

}  // namespace canzona
