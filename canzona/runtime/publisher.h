// Parameters on their way out: when everything that this rank keeps of a bucket
// is updated, its new parameters go to the other data-parallel ranks. Buckets
// leave in the order of the next forward on every rank.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "canzona/runtime/zero/bucket_tasks.h"

namespace canzona {

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
