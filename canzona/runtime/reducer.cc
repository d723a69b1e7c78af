#include "canzona/runtime/reducer.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/base/index.h"
#include "canzona/plan/schedule/names.h"

namespace canzona {
namespace {

std::span<std::byte> bytes_at(float* data, const Extent& extent) {
  return {reinterpret_cast<std::byte*>(data + extent.first),
          static_cast<size_t>(extent.count * kBytesPerFp32)};
}

}  // namespace

Reducer::Reducer(Rank& rank)
    : rank_(rank),
      pending_(rank.layout.gradients.buckets.size()),
      ready_(rank.layout.gradients.tensors.size(), 0),
      num_announced_(rank.layout.gradients.buckets.size(), 0),
      stretches_(rank.layout.gradients.buckets.size()),
      memory_(rank.engine.memory()),
      whole_life_(memory_) {
  found_ = memory_.take_array<int32_t>(1);
  for (size_t b = 0; b < pending_.size(); ++b) {
    const int32_t number = rank.layout.gradients.buckets[b].bucket;
    pending_[b].label = rank.label(bucket_name(rank.plan, number));
    for (int32_t t : rank.plan.buckets[index(number)].tensors) {
      const FlatLayout::Place& place = rank.layout.gradients.tensors[index(t)];
      const float* first = rank.store.gradients() + place.first;
      // Of slices alone nobody asks.
      const int64_t count = rank.layout.gradients.whole ? place.count : 0;
      stretches_[b].push_back({const_run(first), count});
      num_announced_[b] += rank.tensor(t).frozen ? 0 : 1;
    }
  }
  const PlanPart& plan = rank.plan;
  const bool plain = plan.grid.places == 1 && rank.groups.replicas() == nullptr;
  for (size_t b = 0; !plain && b < pending_.size(); ++b)
    sums_.emplace_back(rank, b);
  begin();
}

void Reducer::begin() {
  next_ = 0;
  nonfinite_ = -1;
  std::fill(ready_.begin(), ready_.end(), 0);
  for (size_t b = 0; b < pending_.size(); ++b)
    pending_[b].num_missing = num_announced_[b];
}

void Reducer::ready(int32_t tensor) {
  const FlatLayout::Place& place =
      rank_.layout.gradients.tensors.at(index(tensor));
  if (place.bucket < 0)
    throw UsageError(cat("grad_ready: tensor ",
                         quoted(rank_.tensor(tensor).name),
                         " has no shard on rank ", rank_.known_as));
  if (ready_[index(tensor)] >= announcements_)
    throw UsageError(cat("grad_ready: the gradient of ",
                         quoted(rank_.tensor(tensor).name),
                         " was announced twice in one iteration"));
  if (++ready_[index(tensor)] < announcements_) return;
  --pending_[index(place.bucket)].num_missing;
  post_full();
}

void Reducer::post_full() {
  while (next_ < pending_.size() && pending_[next_].num_missing == 0)
    post(next_++);
  if (rank_.options.overlap == Overlap::kNone && !by_modules()) wait_posted();
}

void Reducer::wait_posted() {
  const WaitWatch watch(rank_, rank_.times.waited_for_gradients);
  for (size_t b = 0; b < next_; ++b) {
    pending_[b].matrices.wait();
    pending_[b].elements.wait();
  }
}

void Reducer::complete(size_t bucket) {
  pending_[bucket].num_missing = 0;
  post_full();
}

void Reducer::finish() {
  for (Pending& bucket : pending_) bucket.num_missing = 0;
  post_full();
  const WaitWatch watch(rank_, rank_.times.waited_for_gradients);
  const Span span(rank_.track, "wait for gradients");
  for (Pending& bucket : pending_) {
    bucket.matrices.wait();
    bucket.elements.wait();
  }
}

void Reducer::look_for_nonfinite(const RankBucket& bucket) {
  const size_t b = index(&bucket - rank_.layout.gradients.buckets.data());
  rank_.engine.find_nonfinite(found_, stretches_[b]);
  int32_t first = 0;
  rank_.engine.download(reinterpret_cast<std::byte*>(&first),
                        reinterpret_cast<const std::byte*>(found_),
                        sizeof(first));
  if (first == 0 || nonfinite_ >= 0) return;
  nonfinite_ =
      rank_.plan.buckets[index(bucket.bucket)].tensors[index(first - 1)];
}

void Reducer::post(size_t b) {
  const RankBucket& bucket = rank_.layout.gradients.buckets[b];
  if (!by_modules()) {
    look_for_nonfinite(bucket);
    rank_.settle();
  }
  Pending& pending = pending_[b];
  if (!sums_.empty()) {
    pending.matrices = rank_.groups.data(bucket.of_experts)
                           .run(sums_[b], {.label = pending.label});
    return;
  }
  const bool scatters = is_scattered(rank_.plan.traffic);
  if (scatters) {
    pending.matrices = scatter(bucket, bucket.matrices, pending.label);
    pending.elements = scatter(bucket, bucket.elements, pending.label);
  } else if (bucket.all.count > 0) {
    pending.matrices =
        rank_.groups.data(bucket.of_experts)
            .all_reduce(reduction_of(rank_.options.wire),
                        bytes_at(rank_.store.gradients(), bucket.all),
                        {.label = pending.label});
  }
}

Work Reducer::scatter(const RankBucket& bucket, const Region& region,
                      std::string_view label) {
  if (region.all.count == 0) return {};
  float* gradients = rank_.store.gradients();
  return rank_.groups.data(bucket.of_experts)
      .reduce_scatter_v(reduction_of(rank_.options.wire),
                        bytes_at(gradients, region.all), region.counts,
                        bytes_at(gradients, region.own), {.label = label});
}

}  // namespace canzona
