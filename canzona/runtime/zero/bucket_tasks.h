// A task is what a courier does with a bucket in one turn: sums its gradients
// into the part that this rank keeps, or sends its new parameters to all that
// keep them whole. The schedule's entries (plan/schedule/rank_entries.h) say
// which collectives that takes, over which groups, with which counts and where
// in memory. If tensors lie whole though several ranks share their slices
// (plan/zero.h), messages are put together in a staging area; elsewhere a
// bucket lies as it travels.
//
//   BucketTask sum(rank, bucket, Resting::kGradients);
//   sum.post();
//   sum.wait();
//
// One thread posts; any may wait afterwards.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "canzona/runtime/rank.h"

namespace canzona {

class BucketTask {
 public:
  // `bucket`: number in the rank's layout. Sums gradients, or publishes
  // parameters.
  BucketTask(Rank& rank, size_t bucket, Resting what);

  bool has_work() const { return !steps_.empty(); }
  const Courier& courier() const { return courier_; }
  void post();
  // Compute goes on after it, or `lane` does; done if nothing was posted.
  void wait() { order(rank_.compute.get()); }
  void order(Lane* lane) { work_.order(lane); }

 private:
  // One entry, with the memory that it works on. An all-reduce, a broadcast, a
  // scatter of shares and a leg have `output` alone.
  struct Step {
    ShownEntry shown;
    NodeGroup& group;
    std::span<const std::byte> input;
    std::span<std::byte> output;
    std::vector<int64_t> counts;   // of each member: elements of a sum, bytes
    std::vector<int64_t> offsets;  // where shares begin in it, bytes
    int root = 0;
  };

  void add_step(const ScheduleEntry& entry);
  std::string_view name() const {
    return what_ == Resting::kGradients ? "sum" : "publish";
  }
  void run() const;
  void carry_out(const Step& step) const;
  void carry_out_leg(const Step& step) const;
  bool is_leg(const ScheduleEntry& entry) const {
    return entry.level != BucketCollective::Level::kBoth;
  }
  std::span<std::byte> memory_of(const Extent& extent) const;

  Rank& rank_;
  const Resting what_;
  const FlatLayout& layout_;
  const RankBucket& bucket_;
  const Staging staging_;
  const int64_t element_bytes_;
  std::byte* const flat_;
  std::byte* const staging_area_;
  Courier& courier_;
  std::vector<Step> steps_;
  Work work_;
};

Reduction reduction_of(GradientWire wire);
// Turns bytes of a sum into elements, each.
std::vector<int64_t> elements_of(std::vector<int64_t> bytes);

}  // namespace canzona
