#include "canzona/runtime/zero/scatterer.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {

Scatterer::Scatterer(Rank& rank, Reducer& reducer,
                     std::vector<Message> messages)
    : rank_(rank),
      reducer_(reducer),
      table_(rank.modules),
      messages_(std::move(messages)),
      modules_(table_.tensors.size()),
      number_in_module_(table_.of_tensor.size(), 0),
      pool_(rank.store.pools().scatter_slots,
            rank.store.pools().large_scatter_slots),
      leaving_(index(pool_.size())),
      last_use_(index(pool_.size())),
      courier_(rank.groups.control(), pool_.size() + 1,
               rank.add_track("scatter modules", rank.groups.gradient_lane()),
               rank.groups.gradient_lane()) {
  for (size_t b = 0; b < messages_.size(); ++b) {
    const RankEntries::OfBucket& entries = rank.entries.of_bucket(b);
    entries_.push_back(rank.show(entries.scatters));
    counts_.push_back(elements_of(entries.scattered));
  }
  for (size_t m = 0; m < modules_.size(); ++m) {
    const std::vector<int32_t>& tensors = table_.tensors[m];
    modules_[m].announced.resize(tensors.size());
    modules_[m].stretches.resize(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i)
      number_in_module_[index(tensors[i])] = i;
  }
  begin();
}

void Scatterer::expect(int64_t num_micro_batches) {
  num_micro_batches_ = num_micro_batches;
  restart_counts();
}

void Scatterer::begin() {
  restart_counts();
  for (Module& module : modules_) module.replaced = false;
}

void Scatterer::restart_counts() {
  for (Module& module : modules_) {
    module.num_done = 0;
    module.restart();
  }
}

float* Scatterer::gradient(int32_t tensor) {
  const int32_t m = table_.module(tensor);
  CANZONA_CHECK(m >= 0, "tensor ", tensor, " is not on this rank");
  if (modules_[index(m)].slot < 0) take_slot(m);
  return rank_.store.scatter_slot(modules_[index(m)].slot) +
         table_.offset[index(tensor)];
}

// Slots that compute holds can be freed only by compute itself.
void Scatterer::require_room(int32_t m) const {
  const bool large = table_.is_large(m);
  const int64_t begun = std::ranges::count_if(
      modules_,
      [&](const Module& module) { return pool_.is_of(module.slot, large); });
  if (begun == pool_.size(large))
    throw UsageError(cat("gradient: ", rank_.label_of(m), ", but ", begun,
                         " modules are in progress and there are ", begun,
                         " slots"));
}

void Scatterer::wait_for_slot(int32_t m) {
  const bool large = table_.is_large(m);
  if (pool_.has_free(large)) return;
  const WaitWatch watch(rank_, rank_.times.waited_for_gradients);
  const Span span(rank_.track, "wait for a slot", rank_.label_of(m));
  for (Work& parcel : leaving_)
    if (!pool_.has_free(large)) parcel.wait();
}

void Scatterer::take_slot(int32_t m) {
  require_room(m);
  rethrow();
  wait_for_slot(m);
  Module& module = modules_[index(m)];
  module.slot = pool_.take_free(table_.is_large(m));
  if (rank_.compute != nullptr) wait_until_done(last_use_[index(module.slot)]);
  count(rank_.track, "scatter slots", pool_.num_taken());
  float* slot = rank_.store.scatter_slot(module.slot);
  int64_t elements = 0;
  for (size_t i = 0; i < module.stretches.size(); ++i) {
    const auto t = index(table_.tensors[index(m)][i]);
    const int64_t tensor_elements = rank_.layout.gradients.tensors[t].count;
    module.stretches[i] = {const_run(slot + table_.offset[t]), tensor_elements};
    elements = std::max(elements, table_.offset[t] + tensor_elements);
  }
  rank_.engine.set_zero(reinterpret_cast<std::byte*>(slot),
                        elements * kBytesPerFp32);
}

void Scatterer::ready(int32_t tensor) {
  const int32_t m = table_.module(tensor);
  Module& module = modules_[index(m)];
  uint8_t& announced = module.announced[number_in_module_[index(tensor)]];
  if (announced != 0 || module.num_done == num_micro_batches_)
    throw UsageError(cat("grad_ready: the gradient of ",
                         quoted(rank_.tensor(tensor).name),
                         " was announced more than ", num_micro_batches_,
                         " times in one iteration"));
  announced = 1;
  if (--module.num_missing > 0) return;
  hand_over(m, module.num_done + 1 == num_micro_batches_);
}

// A module that was never written to still contributes zeros.
void Scatterer::hand_over(int32_t m, bool last) {
  Module& module = modules_[index(m)];
  if (module.slot < 0) take_slot(m);
  reducer_.look_for_nonfinite(module.stretches, table_.tensors[index(m)]);
  rank_.settle(courier_);
  rethrow();
  const Work before = leaving_.back();
  std::ranges::rotate(leaving_, leaving_.begin() + 1);
  leaving_.back() = courier_.run(
      "scatter",
      [this, parcel = Parcel{m, module.slot, !module.replaced, last}](
          Communicator&, const Call&) { scatter(parcel); },
      {.label = rank_.label_of(m)});
  last_use_[index(module.slot)] = leaving_.back();
  module.slot = -1;
  module.replaced = true;
  ++module.num_done;
  module.restart();
  if (rank_.options.overlap == Overlap::kNone) {
    wait_until_done(leaving_.back());
    reducer_.wait_posted();
  }
  if (rank_.options.overlap == Overlap::kMain) wait_until_done(before);
}

void Scatterer::wait_until_done(Work parcel) {
  if (rank_.compute == nullptr && parcel.done())
    return parcel.order(nullptr);  // throws if it has failed
  const WaitWatch watch(rank_, rank_.times.waited_for_gradients);
  const Span span(rank_.track, "wait for gradients");
  parcel.order(rank_.compute.get());
}

// The bucket of a module without gradients is summed like all others, as zeros.
void Scatterer::forget_slices(int32_t m) {
  modules_[index(m)].replaced = true;
  if (table_.buckets[index(m)].empty()) return;  // belongs to another stage
  for (int32_t bucket : table_.buckets[index(m)]) {
    const Extent at_rest = rank_.layout.gradients.buckets[index(bucket)].all;
    rank_.engine.set_zero(
        reinterpret_cast<std::byte*>(rank_.store.gradients() + at_rest.first),
        at_rest.count * kBytesPerFp32);
  }
  rank_.settle(courier_);
}

// Gradients that were begun and not announced are sent as they are.
void Scatterer::finish() {
  for (size_t i = modules_.size(); i-- > 0;) {
    const auto m = static_cast<int32_t>(i);
    if (modules_[i].slot >= 0) hand_over(m, true);
    if (!modules_[i].replaced) forget_slices(m);
  }
  wait_until_done(leaving_.back());
}

void Scatterer::scatter(const Parcel& parcel) {
  {
    const Span span(courier_.track(), "scatter", rank_.label_of(parcel.module));
    for (int32_t bucket : table_.buckets[index(parcel.module)]) {
      scatter_bucket(parcel, bucket);
      if (parcel.last) reducer_.complete(index(bucket));
    }
  }
  pool_.release(parcel.slot);
  count(courier_.track(), "scatter slots", pool_.num_taken());
}

void Scatterer::scatter_bucket(const Parcel& parcel, int32_t bucket) {
  const Message& message = messages_[index(bucket)];
  const Extent at_rest = rank_.layout.gradients.buckets[index(bucket)].all;
  float* slot = rank_.store.scatter_slot(parcel.slot);
  auto* sent = reinterpret_cast<std::byte*>(
      message.direct ? slot + message.in_slot()
                     : rank_.store.gradient_staging());
  const WireOps& ops = rank_.ops_of(courier_);
  if (!message.direct) {
    const Courier::Pause pause(courier_);
    copy_back(ops, sent, reinterpret_cast<const std::byte*>(slot),
              message.copies, kBytesPerFp32);
  }
  for (const ShownEntry& entry : entries_[index(bucket)])
    carry_out(entry, counts_[index(bucket)],
              {sent, index(message.num_elements * kBytesPerFp32)});
  std::byte* own = sent + message.own_first * kBytesPerFp32;
  const Courier::Pause pause(courier_);
  auto* sum =
      reinterpret_cast<std::byte*>(rank_.store.gradients() + at_rest.first);
  if (parcel.first)
    ops.copy(sum, own, at_rest.count * kBytesPerFp32);
  else
    ops.add(Reduction::kFp32Sum, sum, sum, own, at_rest.count);
}

void Scatterer::carry_out(const ShownEntry& shown,
                          std::span<const int64_t> counts,
                          std::span<std::byte> sent) {
  const Span span(courier_.track(), shown.span);
  NodeGroup& group = *rank_.groups.gradients();
  const Reduction reduction = reduction_of(rank_.options.wire);
  switch (shown.entry->level) {
    case BucketCollective::Level::kBoth:
      return group.reduce_scatter_v(reduction, sent, counts, shown.call());
    case BucketCollective::Level::kInside:
      return group.reduce_scatter_inside(reduction, sent, counts, shown.call());
    case BucketCollective::Level::kAcross:
      return group.reduce_scatter_across(reduction, sent, counts, shown.call());
  }
}

}  // namespace canzona
