// What a courier does with a bucket in one turn: sums its gradients, over
// groups and then over replicas, or over both at once (plan/sum_order.h), or
// sends its new parameters. Where tensors lie whole though several ranks share
// their slices (plan/zero.h), what goes round is put together in a staging
// area; elsewhere it lies as it travels.
//
//   SumBucket sum(rank, bucket);
//   sum.post();
//   sum.wait();
//
// One thread posts; any may wait afterwards.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "canzona/plan/schedule/messages.h"
#include "canzona/runtime/rank.h"

namespace canzona {

class BucketTask {
 public:
  virtual ~BucketTask() = default;

  void post();
  void wait() { work_.wait(); }  // done if nothing was posted

 protected:
  // The memory of one layout.
  struct Area {
    const FlatLayout& layout;
    std::byte* flat;
    std::byte* staging;
    int64_t element_bytes;
  };
  // A task without a name is shown as its collectives alone.
  BucketTask(Rank& rank, size_t bucket, const Area& area, Courier& courier,
             std::string_view name);

  virtual void run(Communicator& communicator, const Call& call) = 0;
  // Between where tensors lie and the staging area: all pieces, or those that
  // this rank keeps. There are none where nothing is staged.
  void pack(const std::vector<ExtentCopy>& copies) const;
  void unpack(const std::vector<ExtentCopy>& copies) const;
  // What goes round.
  std::span<std::byte> bytes_of(const Extent& extent) const;
  Span shown(Operation operation) const;

  Rank& rank_;
  const RankBucket& bucket_;
  const Staging staging_;

 private:
  const Area area_;
  Courier& courier_;
  const std::string_view name_, label_;
  Work work_;
};

// Sums a bucket's gradients into the part that this rank keeps.
class SumBucket : public BucketTask {
 public:
  SumBucket(Rank& rank, size_t bucket);

 private:
  // A region that the groups of all replicas add at once: the piece of every
  // rank of a replica in shares, one for each replica.
  struct Shares {
    std::vector<int64_t> counts;   // elements, by rank of all groups
    std::vector<int64_t> offsets;  // bytes in the region, the same
    std::vector<int64_t> own;      // bytes of this rank's piece, by replica
  };
  Shares cut(const Region& region) const;
  void run(Communicator& communicator, const Call& call) override;
  void sum(Communicator& communicator, const Region& region,
           const Shares& shares, const Call& call);
  void sum_at_once(const Region& region, const Shares& shares,
                   const Call& call);

  Shares matrices_, elements_;
};

// Sends this rank's new parameters of a bucket to all that keep them whole.
class PublishBucket : public BucketTask {
 public:
  PublishBucket(Rank& rank, size_t bucket);

 private:
  void run(Communicator& communicator, const Call& call) override;
  void broadcast_matrices(Communicator& communicator, const Call& call);
  void gather(Communicator& communicator, const Region& region,
              const std::vector<int64_t>& bytes, const Call& call);

  std::vector<int64_t> matrix_bytes_, element_bytes_;
};

Reduction reduction_of(GradientWire wire);
// Of counts of elements.
std::vector<int64_t> bytes_of_counts(std::vector<int64_t> counts,
                                     int64_t element);

}  // namespace canzona
