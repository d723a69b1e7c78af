#include "canzona/runtime/zero/module_traffic.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::runtime {

Gatherer::Gatherer(Rank& rank, Publisher& publisher)
    : rank_(rank),
      publisher_(publisher),
      table_(rank.modules),
      messages_(messages_of(rank.part, rank.world_rank, table_,
                            Resting::kParameters)),
      slot_of_module_(table_.tensors.size(), -1),
      uses_(rank.store.pools()),
      courier_(rank.groups.control(), uses_.pool().size(),
               rank.add_track("gather modules", rank.groups.parameter_lane()),
               rank.groups.parameter_lane()) {
  if (rank.compute != nullptr)
    for (int64_t slot = 0; slot < uses_.pool().size(); ++slot)
      released_.push_back(rank.compute->make_mark());
  for (size_t b = 0; b < messages_.size(); ++b)
    entries_.push_back(rank.show(rank.entries.of_bucket(b).gathers));
}

void Gatherer::begin(std::span<const int32_t> uses) {
  for (int32_t module : uses) require_module("begin_iteration", module);
  publisher_.send_held();
  if (num_released_ != uses_.size())
    throw UsageError(cat("begin_iteration: ", uses_.size() - num_released_,
                         " uses of the previous step were not released"));
  num_before_ += uses_.size();
  num_asked_ = num_released_ = 0;
  uses_.begin(uses, table_.large);
  gathers_.clear();
  post_ahead();
}

int64_t Gatherer::horizon() const {
  const int64_t all = uses_.size();
  switch (rank_.options.overlap) {
    case Overlap::kNone:
      return num_asked_;
    case Overlap::kMain:
      return num_asked_ == 0 ? 0 : std::min(all, num_asked_ + 1);
    case Overlap::kBackground:
      break;
  }
  return all;
}

void Gatherer::post_ahead() {
  while (uses_.num_posted() < horizon() && uses_.post_next()) {
    count(rank_.track, "gather slots", uses_.pool().num_taken());
    const int64_t number = uses_.num_posted() - 1;
    if (courier_.lane() != nullptr) hold_back(uses_[number]);
    const auto body = [this, use = uses_[number], id = num_before_ + number](
                          Communicator&, const Call&) { gather(use, id); };
    gathers_.push_back(courier_.run(
        "gather", body, {.label = rank_.label_of(uses_[number].module)}));
  }
}

// The device lags behind the calls: unless gathers run as far ahead as they
// can, they are ordered after the work that compute has issued so far.
void Gatherer::hold_back(const ModuleUses::Use& use) {
  courier_.lane()->wait_for(*released_[index(use.slot)]);
  if (rank_.options.overlap != Overlap::kBackground) rank_.settle(courier_);
}

// Throws if only compute itself could free the slot that it would wait for.
void Gatherer::require_room(int32_t module) const {
  if (slot_of_module_[index(module)] >= 0)
    throw UsageError(cat("wait_params: ", rank_.label_of(module),
                         " is in use and was not released"));
  if (uses_.num_posted() == num_asked_ &&
      uses_.pool().is_taken(uses_[num_asked_].slot))
    throw UsageError(cat("wait_params: ", rank_.label_of(module), ", but ",
                         num_asked_ - num_released_,
                         " modules are in use and there are ",
                         uses_.pool().size(table_.is_large(module)), " slots"));
}

void Gatherer::require_over() const {
  if (num_released_ != uses_.size())
    throw UsageError(cat("step: ", uses_.size() - num_released_,
                         " uses of modules were not released"));
}

bool Gatherer::has(int32_t module) const {
  return module >= 0 && module < std::ssize(table_.tensors) &&
         !table_.buckets[index(module)].empty();
}

void Gatherer::require_module(const char* call, int32_t module) const {
  if (!has(module))
    throw UsageError(
        cat(call, ": rank ", rank_.known_as, " has no module ", module));
}

void Gatherer::wait(int32_t module) {
  require_module("wait_params", module);
  const bool is_left = num_asked_ < uses_.size();
  if (!is_left || uses_[num_asked_].module != module)
    throw UsageError(
        cat("wait_params: ", rank_.label_of(module), ", but ",
            is_left ? cat("the next use announced by begin_iteration is ",
                          rank_.label_of(uses_[num_asked_].module))
                    : "all uses announced by begin_iteration are over"));
  require_room(module);
  const int64_t number = num_asked_++;
  post_ahead();
  Work& gathered = gathers_[index(number)];
  if (rank_.compute != nullptr || !gathered.done()) {
    const WaitWatch watch(rank_, rank_.times.waited_for_parameters);
    const Span span(rank_.track, "wait for parameters", rank_.label_of(module));
    gathered.order(rank_.compute.get());
    flow_end(rank_.track, "parameters", num_before_ + number);
  } else {
    gathered.order(nullptr);  // throws if it has failed
  }
  slot_of_module_[index(module)] = uses_[number].slot;
}

std::byte* Gatherer::parameter(int32_t tensor) const {
  const int32_t module = table_.module(tensor);
  CANZONA_CHECK(module >= 0, "tensor ", tensor, " is not on this rank");
  const int64_t slot = slot_of_module_[index(module)];
  if (slot < 0)
    throw UsageError(cat("parameter ", quoted(rank_.tensor(tensor).name),
                         " is used outside wait_params and release_params of "
                         "its module"));
  return rank_.store.gather_slot(slot) +
         table_.offset[index(tensor)] * rank_.store.parameter_bytes();
}

void Gatherer::release(int32_t module) {
  require_module("release_params", module);
  int64_t& slot = slot_of_module_[index(module)];
  if (slot < 0)
    throw UsageError(
        cat("release_params: ", rank_.label_of(module), " is not in use"));
  release_slot(slot);
  count(rank_.track, "gather slots", uses_.pool().num_taken());
  slot = -1;
  ++num_released_;
  post_ahead();
}

// Work that compute has issued so far may still read the slot.
void Gatherer::release_slot(int64_t slot) {
  if (rank_.compute != nullptr)
    rank_.compute->record(*released_[index(slot)]);
  else
    rank_.settle();
  uses_.release(slot);
}

void Gatherer::gather(const ModuleUses::Use& use, int64_t id) {
  {
    const Courier::Pause pause(courier_);
    publisher_.wait_elsewhere(use.module, courier_.lane());
  }
  const Span span(courier_.track(), "gather", rank_.label_of(use.module));
  for (int32_t bucket : table_.buckets[index(use.module)])
    gather_bucket(bucket, rank_.store.gather_slot(use.slot));
  flow_begin(courier_.track(), "parameters", id);
}

void Gatherer::gather_bucket(int32_t bucket, std::byte* slot) {
  const int64_t size = rank_.store.parameter_bytes();
  const Message& message = messages_[index(bucket)];
  std::byte* arrival = message.direct ? slot + message.in_slot() * size
                                      : rank_.store.parameter_staging();
  for (const ShownEntry& entry : entries_[index(bucket)])
    carry_out(entry, rank_.entries.of_bucket(index(bucket)).gathered,
              {arrival, index(message.num_elements * size)});
  if (message.direct) return;
  const Courier::Pause pause(courier_);
  copy_there(rank_.ops_of(courier_), slot, arrival, message.copies, size);
}

void Gatherer::carry_out(const ShownEntry& shown,
                         std::span<const int64_t> bytes,
                         std::span<std::byte> arrival) {
  const Span span(courier_.track(), shown.span);
  NodeGroup& group = *rank_.groups.parameters();
  const ScheduleEntry& e = *shown.entry;
  const std::span<const std::byte> own(
      rank_.store.parameter(e.own.first),
      index(e.own.count * rank_.store.parameter_bytes()));
  switch (e.level) {
    case BucketCollective::Level::kBoth:
      return group.all_gather_v(own, bytes, arrival, shown.call());
    case BucketCollective::Level::kAcross:
      return group.all_gather_across(own, bytes, arrival, shown.call());
    case BucketCollective::Level::kInside:
      return group.all_gather_inside(bytes, arrival, shown.call());
  }
}

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

}  // namespace canzona::runtime
