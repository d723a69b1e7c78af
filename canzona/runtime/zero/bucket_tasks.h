// A task is one courier operation on a bucket: it sums the gradients into the
// part that this rank stores, or publishes new parameters to all ranks that
// store them whole. The schedule's entries (plan/schedule/entries.h) give
// the collectives, their groups, counts and memory. If tensors are stored whole
// although several ranks share their slices (plan/zero.h), messages are
// assembled in a staging area; otherwise a bucket is sent as it lies.
//
//   BucketTask sum(rank, bucket, Resting::kGradients);
//   sum.post();
//   sum.wait();
//
// One thread posts; any thread may wait afterwards.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "canzona/runtime/rank.h"

namespace canzona {

class BucketTask {
 public:
  // `bucket` is the number in the rank's layout; `what` selects whether to sum
  // gradients or publish parameters.
  BucketTask(Rank& rank, size_t bucket, Resting what);

  bool has_work() const { return !steps_.empty(); }
  const Courier& courier() const { return courier_; }
  void post();
  // Orders compute, or `lane`, after the task; a no-op if nothing was posted.
  void wait() { order(rank_.compute.get()); }
  void order(Lane* lane) { work_.order(lane); }

 private:
  // One entry, with its memory. An all-reduce, a broadcast, a scatter of shares
  // and a leg use only `output`.
  struct Step {
    ShownEntry shown;
    NodeGroup& group;
    std::span<const std::byte> input;
    std::span<std::byte> output;
    std::vector<int64_t> counts;   // per member: elements of a sum, else bytes
    std::vector<int64_t> offsets;  // where shares begin, in bytes
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
// Converts each count from bytes of a sum to elements.
std::vector<int64_t> elements_of(std::vector<int64_t> bytes);

}  // namespace canzona
