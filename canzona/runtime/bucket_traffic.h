// A bucket's gradients on their way in, and its parameters on their way out.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "canzona/runtime/zero/bucket_tasks.h"

namespace canzona {

// Gradients on their way in: a bucket is reduced over its data-parallel ranks
// when its last tensor is announced. Operations are issued in the plan's order
// whatever the order of announcements, so every rank issues the same.

class Reducer {
 public:
  explicit Reducer(Rank& rank);

  // Sets how often every tensor is announced in an iteration.
  void expect(int64_t announcements) { announcements_ = announcements; }
  // Announces a tensor of this rank. UsageError if all its announcements of
  // this iteration have come before.
  void ready(int32_t tensor);
  // Announces all that was not, and waits until every bucket is reduced.
  void finish();
  // A new iteration begins.
  void begin();

  // Called where gradients leave by modules (zero/scatterer.h): a bucket's last
  // one has been added. By the thread of the scatterer, which waits for compute
  // and compute for it.
  void complete(size_t bucket);
  // Until what was posted has ended; the scatterer's thread rests.
  void wait_posted();

  // Gradients of these tensors are about to leave; compute's thread.
  void look_for_nonfinite(std::span<const Engine::Stretch> gradients,
                          std::span<const int32_t> tensors);
  // The first tensor whose own gradient was not finite, before any sum; -1.
  int32_t nonfinite() const { return nonfinite_; }
  // The same as a code in the engine's memory (step/gradient_check.h), where
  // nobody waits for it; 0 if there is none.
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
  size_t next_ = 0;  // bucket to be posted
  Arena memory_;
  Arena::Scope whole_life_;
  int32_t* found_;
  int64_t* own_code_;
  std::vector<int64_t> codes_;  // of what is looked at
  int32_t nonfinite_ = -1;
};

// Parameters on their way out: when everything that this rank keeps of a bucket
// is updated, its new parameters go to the other data-parallel ranks. Buckets
// leave in the order of the next forward on every rank.

class Publisher {
 public:
  explicit Publisher(Rank& rank);

  // A step begins: nothing is updated yet.
  void begin();
  // One kept matrix, or all of AdamW's elements, are updated.
  void updated(size_t kept_matrix);
  void updated_elements();

  void wait(int32_t module);
  void wait_all();
  // Everything that is updated leaves; then another thread, or a lane, may wait
  // for it until the next step.
  void send_held();
  void wait_elsewhere(int32_t module, Lane* lane);

  // While held, nothing leaves before the first wait. Broadcasts are part of
  // the step and not held.
  void hold(bool held) { held_ = held; }

 private:
  struct Leaving : BucketTask {
    Leaving(Rank& rank, size_t bucket)
        : BucketTask(rank, bucket, Resting::kParameters) {}
    // With a lane: what stays on this rank is updated, for others to gather.
    std::unique_ptr<Mark> updated;
    int32_t num_in = 1;  // what it waits for in a step; AdamW's elements
    int32_t num_missing = 0;
  };

  void updated_bucket(Leaving& bucket);

  Rank& rank_;
  std::deque<Leaving> leaving_;                  // by bucket of the rank
  std::vector<int32_t> of_matrix_;               // bucket, by kept matrix
  std::vector<std::vector<int32_t>> of_module_;  // buckets
  size_t num_left_;                              // buckets yet to be sent
  bool held_ = false;
};

}  // namespace canzona
