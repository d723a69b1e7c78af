// What a courier does with a bucket in one turn where one collective is not
// enough: sums over groups and then over replicas, or over both at once
// (plan/sum_order.h), through a staging area where tensors lie whole; new
// parameters through a staging area.
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
  // A region that the groups of all replicas add at once: the piece of every
  // rank of a replica in shares, one for each replica.
  struct Shares {
    std::vector<int64_t> counts;   // elements, by rank of all groups
    std::vector<int64_t> offsets;  // bytes in the region, the same
    std::vector<int64_t> own;      // bytes of this rank's piece, by replica
  };
  Shares cut(const Region& region) const;
  void sum(Communicator& communicator, const Region& region,
           const Shares& shares, const Call& call);
  void sum_at_once(const Region& region, const Shares& shares,
                   const Call& call);
  std::span<std::byte> bytes_of(const Extent& extent) const;

  Rank& rank_;
  const RankBucket& bucket_;
  StagedBucket staged_;
  float* base_;
  Shares matrices_, elements_;
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
