#include "canzona/runtime/publisher.h"

#include "canzona/base/index.h"
#include "canzona/plan/schedule/modules.h"

namespace canzona {

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
