// Gradients on their way in: a bucket is reduced over its data-parallel ranks
// when its last tensor is announced. Operations are issued in the plan's order
// whatever the order of announcements, so every rank issues the same.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "canzona/runtime/zero/bucket_tasks.h"

namespace canzona {

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

}  // namespace canzona
