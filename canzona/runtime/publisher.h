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
  // Everything that is updated leaves; then another thread may wait for it
  // until the next step.
  void send_held() { post_updated(); }
  void wait_elsewhere(int32_t module);

  // While held, nothing leaves before the first wait. Broadcasts are part of
  // the step and not held.
  void hold(bool held) { held_ = held; }

 private:
  struct Leaving {
    int32_t num_missing = 0;
    Work matrices, elements;
    std::string_view label;
  };

  void updated_bucket(int32_t bucket);
  void post_updated();
  void post(size_t bucket);
  void post_broadcasts(const RankBucket& bucket, Leaving& leaving);
  Work gather(const RankBucket& bucket, const Region& region,
              const std::vector<int64_t>& bytes, std::string_view label);

  Rank& rank_;
  std::deque<PublishBucket> tasks_;  // by bucket, where tensors lie whole
  std::vector<Leaving> leaving_;     // by bucket of the rank
  std::vector<int32_t> num_in_;      // what a bucket waits for
  std::vector<int32_t> of_matrix_;   // bucket, by kept matrix
  std::vector<std::vector<int64_t>> matrix_bytes_, element_bytes_;
  std::vector<std::vector<int32_t>> of_module_;  // buckets
  size_t next_ = 0;                              // counted from the last bucket
  bool held_ = false;
};

}  // namespace canzona
