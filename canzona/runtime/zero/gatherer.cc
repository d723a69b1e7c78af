#include "canzona/runtime/zero/gatherer.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {

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

}  // namespace canzona
