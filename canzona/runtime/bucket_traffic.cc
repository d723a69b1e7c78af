#include "canzona/runtime/bucket_traffic.h"

#include <algorithm>
#include <functional>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/schedule/modules.h"
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
      const FlatLayout::Shard& stored = layout.tensors[index(t)];
      const float* first = rank.store.gradients() + stored.first;
      // Unused when only slices are stored.
      const int64_t count = layout.whole ? stored.count : 0;
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

Publisher::Publisher(Rank& rank)
    : rank_(rank),
      of_module_(index(num_modules(rank.part.model))),
      num_left_(0) {  // nothing to send before the first step
  const FlatLayout& layout = rank.layout.parameters;
  for (size_t b = 0; b < layout.buckets.size(); ++b) {
    leaving_.emplace_back(rank, b);
    if (rank.compute != nullptr && !leaving_.back().has_work())
      leaving_.back().updated = rank.compute->make_mark();
    for (int32_t t :
         rank.part.buckets[index(layout.buckets[b].bucket)].tensors) {
      auto& list =
          of_module_[index(module_of(rank.part.model, rank.tensor(t)))];
      const auto number = static_cast<int32_t>(b);
      if (list.empty() || list.back() != number) list.push_back(number);
    }
  }
  for (const KeptMatrix& matrix : rank.kept.matrices) {
    of_matrix_.push_back(layout.tensors[index(rank.tensor_of(matrix))].bucket);
    ++leaving_[index(of_matrix_.back())].num_in;
  }
}

void Publisher::begin() {
  num_left_ = leaving_.size();
  for (Leaving& bucket : leaving_) bucket.num_missing = bucket.num_in;
}

void Publisher::updated(size_t kept_matrix) {
  updated_bucket(leaving_[index(of_matrix_[kept_matrix])]);
}

void Publisher::updated_elements() {
  for (Leaving& bucket : leaving_) updated_bucket(bucket);
}

void Publisher::updated_bucket(Leaving& bucket) {
  --bucket.num_missing;
  if (!held_ || rank_.part.traffic == Traffic::kBroadcast) send_held();
}

void Publisher::send_held() {
  for (; num_left_ > 0; --num_left_) {
    Leaving& bucket = leaving_[num_left_ - 1];
    if (bucket.num_missing > 0) return;
    if (bucket.updated != nullptr) rank_.compute->record(*bucket.updated);
    if (!bucket.has_work()) continue;
    rank_.settle(bucket.courier());
    bucket.post();
  }
}

void Publisher::wait(int32_t module) {
  send_held();
  const WaitWatch watch(rank_, rank_.times.waited_for_parameters);
  const Span span(rank_.compute != nullptr ? rank_.track : nullptr,
                  "wait for parameters", rank_.label_of(module));
  wait_elsewhere(module, rank_.compute.get());
}

void Publisher::wait_elsewhere(int32_t module, Lane* lane) {
  for (int32_t b : of_module_.at(index(module))) {
    Leaving& bucket = leaving_[index(b)];
    bucket.order(lane);
    if (bucket.updated != nullptr) lane->wait_for(*bucket.updated);
  }
}

void Publisher::wait_all() {
  send_held();
  const WaitWatch watch(rank_, rank_.times.waited_for_parameters);
  for (Leaving& bucket : leaving_) bucket.wait();
}

}  // namespace canzona
