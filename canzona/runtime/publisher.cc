#include "canzona/runtime/publisher.h"

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/plan/modules.h"
#include "canzona/base/index.h"
#include "canzona/plan/schedule/names.h"

namespace canzona {
Publisher::Publisher(Rank& rank)
    : rank_(rank),
      leaving_(rank.layout.parameters.buckets.size()),
      num_in_(leaving_.size(), 1),  // AdamW's elements
      of_module_(index(num_modules(rank.plan.model))) {
  next_ = leaving_.size();  // nothing to send before the first step
  for (const KeptMatrix& matrix : rank.kept.matrices) {
    const int32_t bucket =
        rank.layout.parameters.tensors[index(rank.tensor_of(matrix))].bucket;
    of_matrix_.push_back(bucket);
    ++num_in_[index(bucket)];
  }
  const int64_t bytes = rank.store.parameter_bytes();
  for (size_t b = 0; b < leaving_.size(); ++b) {
    const RankBucket& bucket = rank.layout.parameters.buckets[b];
    leaving_[b].label = rank.label(bucket_name(rank.plan, bucket.bucket));
    if (rank.layout.parameters.staged) tasks_.emplace_back(rank, b);
    matrix_bytes_.push_back(bytes_of_counts(bucket.matrices.counts, bytes));
    element_bytes_.push_back(bytes_of_counts(bucket.elements.counts, bytes));
    for (int32_t t : rank.plan.buckets[index(bucket.bucket)].tensors) {
      auto& list =
          of_module_[index(module_of(rank.plan.model, rank.tensor(t)))];
      const auto number = static_cast<int32_t>(b);
      if (list.empty() || list.back() != number) list.push_back(number);
    }
  }
}

void Publisher::wait_elsewhere(int32_t module) {
  for (int32_t b : of_module_.at(index(module))) {
    Work matrices = leaving_[index(b)].matrices;
    Work elements = leaving_[index(b)].elements;
    matrices.wait();
    elements.wait();
  }
}

void Publisher::begin() {
  next_ = 0;
  for (size_t b = 0; b < leaving_.size(); ++b)
    leaving_[b].num_missing = num_in_[b];
}

void Publisher::updated(size_t kept_matrix) {
  updated_bucket(of_matrix_[kept_matrix]);
}

void Publisher::updated_elements() {
  for (size_t b = 0; b < leaving_.size(); ++b)
    updated_bucket(static_cast<int32_t>(b));
}

void Publisher::updated_bucket(int32_t bucket) {
  --leaving_[index(bucket)].num_missing;
  if (!held_ || rank_.plan.traffic == Traffic::kBroadcast) post_updated();
}

void Publisher::post_updated() {
  while (next_ < leaving_.size()) {
    const size_t head = leaving_.size() - 1 - next_;
    if (leaving_[head].num_missing > 0) return;
    post(head);
    ++next_;
  }
}

void Publisher::post(size_t b) {
  if (rank_.plan.traffic == Traffic::kAllReduce) return;
  rank_.settle();
  const RankBucket& bucket = rank_.layout.parameters.buckets[b];
  Leaving& leaving = leaving_[b];
  if (!tasks_.empty()) {
    leaving.matrices = rank_.groups.publish(bucket.of_experts)
                           .run(tasks_[b], {.label = leaving.label});
    return;
  }
  if (rank_.plan.traffic == Traffic::kBroadcast)
    post_broadcasts(bucket, leaving);
  else
    leaving.matrices =
        gather(bucket, bucket.matrices, matrix_bytes_[b], leaving.label);
  leaving.elements =
      gather(bucket, bucket.elements, element_bytes_[b], leaving.label);
}

Work Publisher::gather(const RankBucket& bucket, const Region& region,
                       const std::vector<int64_t>& bytes,
                       std::string_view label) {
  if (region.all.count == 0) return {};
  const auto span = [&](const Extent& extent) {
    return std::span<std::byte>(
        rank_.store.parameter(extent.first),
        index(extent.count * rank_.store.parameter_bytes()));
  };
  return rank_.groups.publish(bucket.of_experts)
      .all_gather_v(span(region.own), bytes, span(region.all),
                    {.label = label});
}

// Of several operations in one queue, the last one's end is the end of all.
void Publisher::post_broadcasts(const RankBucket& bucket, Leaving& leaving) {
  const Bucket& planned = rank_.plan.buckets[index(bucket.bucket)];
  for (int32_t i = 0; i < planned.num_matrix_tensors; ++i) {
    const int32_t t = planned.tensors[index(i)];
    for (const TensorPiece& piece : rank_.layout.parameters.pieces[index(t)])
      leaving.matrices =
          rank_.groups.publish(bucket.of_experts)
              .broadcast(rank_.plan.home[index(t)],
                         {rank_.store.parameter(piece.at),
                          index(piece.count * rank_.store.parameter_bytes())},
                         {.label = leaving.label});
  }
}

void Publisher::wait(int32_t module) {
  post_updated();
  const WaitWatch watch(rank_, rank_.times.waited_for_parameters);
  for (int32_t b : of_module_.at(index(module))) {
    leaving_[index(b)].matrices.wait();
    leaving_[index(b)].elements.wait();
  }
}

void Publisher::wait_all() {
  post_updated();
  const WaitWatch watch(rank_, rank_.times.waited_for_parameters);
  for (Leaving& leaving : leaving_) {
    leaving.matrices.wait();
    leaving.elements.wait();
  }
}

}  // namespace canzona
