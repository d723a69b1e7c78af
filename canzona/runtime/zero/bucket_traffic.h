// A bucket's gradients on their way in, and its parameters on their way out:
// the tasks of couriers, and who posts them when.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "canzona/runtime/rank.h"

namespace canzona::runtime {

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

Reduction reduction_of(DType wire);
// Converts each count from bytes of a sum to elements.
std::vector<int64_t> elements_of(std::vector<int64_t> bytes);

// Reduces gradients: a bucket is reduced over its data-parallel ranks when its
// last tensor is announced. Operations are issued in the plan's order whatever
// the order of announcements, so that it is the same on every rank.
class Reducer {
 public:
  explicit Reducer(Rank& rank);

  // Sets how often every tensor is announced in an iteration.
  void expect(int64_t announcements) { announcements_ = announcements; }
  // Announces a tensor of this rank. Throws UsageError if it has been announced
  // as often as expected in this iteration.
  void ready(int32_t tensor);
  // Announces all remaining tensors and waits until every bucket is reduced.
  void finish();
  // Starts a new iteration.
  void begin();

  // Used where gradients are scattered by module (module_traffic.h): the last
  // gradient of a bucket has been added. Called by the scatterer's thread; it
  // waits for compute, and compute for it.
  void complete(size_t bucket);
  // Waits for everything posted; the scatterer's thread must be idle.
  void wait_posted();

  // Called by compute's thread just before these gradients are sent.
  void look_for_nonfinite(std::span<const Engine::Stretch> gradients,
                          std::span<const int32_t> tensors);
  // Which tensor's own gradient was first not finite before any sum, as a code
  // in the engine's memory (step/gradient_check.h); 0 if there is none.
  const int64_t* own_code() const { return own_code_; }

 private:
  struct Pending : BucketTask {
    Pending(Rank& rank, size_t bucket)
        : BucketTask(rank, bucket, Resting::kGradients) {}
    std::span<const int32_t> tensors;
    std::vector<Engine::Stretch> gradients;  // of these
    int32_t num_announced = 0;               // tensors, in an iteration
    int32_t num_missing = 0;
  };

  void post_full();
  bool by_modules() const { return rank_.groups.gradients() != nullptr; }

  Rank& rank_;
  std::deque<Pending> pending_;  // by bucket of the rank
  std::vector<int64_t> ready_;   // announcements, by tensor
  int64_t announcements_ = 1;
  size_t next_ = 0;  // next bucket to post
  Arena memory_;
  Arena::Scope whole_life_;
  int32_t* found_;
  int64_t* own_code_;
  std::vector<int64_t> codes_;  // of the gradients being checked
};

// Publishes parameters: once everything that this rank updates of a bucket is
// updated, its new parameters are sent to the other data-parallel ranks. Every
// rank sends buckets in the order of the next forward.
class Publisher {
 public:
  explicit Publisher(Rank& rank);

  // Starts a step: nothing is updated yet.
  void begin();
  // One kept matrix, or all of AdamW's elements, have been updated.
  void updated(size_t kept_matrix);
  void updated_elements();

  void wait(int32_t module);
  void wait_all();
  // Sends everything that is updated; another thread, or a lane, may then wait
  // for it until the next step.
  void send_held();
  void wait_elsewhere(int32_t module, Lane* lane);

  // While held, nothing is sent before the first wait. Broadcasts are part of
  // the step and are not held.
  void hold(bool held) { held_ = held; }

 private:
  struct Leaving : BucketTask {
    Leaving(Rank& rank, size_t bucket)
        : BucketTask(rank, bucket, Resting::kParameters) {}
    // With a lane: what this rank keeps is updated and may be gathered.
    std::unique_ptr<Mark> updated;
    int32_t num_in = 1;  // updates to wait for per step; one is AdamW's
    int32_t num_missing = 0;
  };

  void updated_bucket(Leaving& bucket);

  Rank& rank_;
  std::deque<Leaving> leaving_;                  // by bucket of the rank
  std::vector<int32_t> of_matrix_;               // bucket, by kept matrix
  std::vector<std::vector<int32_t>> of_module_;  // buckets
  size_t num_left_;                              // buckets not sent yet
  bool held_ = false;
};

}  // namespace canzona::runtime
