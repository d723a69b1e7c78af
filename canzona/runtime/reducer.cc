#include "canzona/runtime/reducer.h"

#include <algorithm>
#include <functional>

#include "canzona/base/error.h"
#include "canzona/base/index.h"
#include "canzona/base/text.h"
#include "canzona/runtime/step/gradient_check.h"

namespace canzona {

Reducer::Reducer(Rank& rank)
    : rank_(rank),
      ready_(rank.layout.gradients.tensors.size(), 0),
      memory_(rank.engine.memory()),
      whole_life_(memory_),
      found_(memory_.take_array<int32_t>(1)),
      own_code_(memory_.take_array<int64_t>(1)) {
  const FlatLayout& layout = rank.layout.gradients;
  for (size_t b = 0; b < layout.buckets.size(); ++b) {
    Pending& pending = pending_.emplace_back(rank, b);
    pending.tensors =
        rank.part.buckets[index(layout.buckets[b].bucket)].tensors;
    for (int32_t t : pending.tensors) {
      const FlatLayout::Shard& place = layout.tensors[index(t)];
      const float* first = rank.store.gradients() + place.first;
      // Unused when only slices are stored.
      const int64_t count = layout.whole ? place.count : 0;
      pending.gradients.push_back({const_run(first), count});
      pending.num_announced += rank.tensor(t).frozen ? 0 : 1;
    }
  }
  begin();
}

void Reducer::begin() {
  next_ = 0;
  nonfinite_ = -1;
  if (rank_.compute != nullptr)
    rank_.engine.set_zero(reinterpret_cast<std::byte*>(own_code_),
                          sizeof(*own_code_));
  std::fill(ready_.begin(), ready_.end(), 0);
  for (Pending& bucket : pending_) bucket.num_missing = bucket.num_announced;
}

void Reducer::ready(int32_t tensor) {
  if (ready_[index(tensor)] >= announcements_)
    throw UsageError(cat("grad_ready: the gradient of ",
                         quoted(rank_.tensor(tensor).name),
                         " was announced twice in one iteration"));
  if (++ready_[index(tensor)] < announcements_) return;
  const FlatLayout& layout = rank_.layout.gradients;
  --pending_[index(layout.tensors[index(tensor)].bucket)].num_missing;
  post_full();
}

void Reducer::post_full() {
  for (; next_ < pending_.size() && pending_[next_].num_missing == 0; ++next_) {
    Pending& bucket = pending_[next_];
    if (!by_modules()) {
      look_for_nonfinite(bucket.gradients, bucket.tensors);
      rank_.settle(bucket.courier());
    }
    bucket.post();
  }
  if (rank_.options.overlap == Overlap::kNone && !by_modules()) wait_posted();
}

void Reducer::wait_posted() {
  const WaitWatch watch(rank_, rank_.times.waited_for_gradients);
  for (size_t b = 0; b < next_; ++b) pending_[b].wait();
}

void Reducer::complete(size_t bucket) {
  pending_[bucket].num_missing = 0;
  post_full();
}

void Reducer::finish() {
  for (Pending& bucket : pending_) bucket.num_missing = 0;
  post_full();
  const Span span(rank_.track, "wait for gradients");
  wait_posted();
}

void Reducer::look_for_nonfinite(std::span<const Engine::Stretch> gradients,
                                 std::span<const int32_t> tensors) {
  if (rank_.compute != nullptr) {
    codes_.clear();
    for (int32_t tensor : tensors)
      codes_.push_back(nonfinite_code(rank_, tensor, true));
    const auto look = [&] {
      rank_.engine.find_nonfinite(found_, gradients);
      rank_.engine.keep_first_code(own_code_, found_, codes_);
    };
    return rank_.engine.repeat(std::cref(look));
  }
  rank_.engine.find_nonfinite(found_, gradients);
  int32_t first = 0;
  rank_.engine.download(reinterpret_cast<std::byte*>(&first),
                        reinterpret_cast<const std::byte*>(found_),
                        sizeof(first));
  if (first > 0 && nonfinite_ < 0) nonfinite_ = tensors[index(first - 1)];
}

}  // namespace canzona
