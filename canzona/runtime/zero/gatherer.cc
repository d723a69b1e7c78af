#include "canzona/runtime/zero/gatherer.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/index.h"
#include "canzona/base/text.h"

namespace canzona {

Gatherer::Gatherer(Rank& rank, Publisher& publisher)
    : rank_(rank),
      publisher_(publisher),
      table_(rank.modules),
      messages_(
          messages_of(rank.part, rank.place, table_, Resting::kParameters)),
      slot_of_module_(table_.tensors.size(), -1),
      pool_(rank.store.pools().gather_slots,
            rank.store.pools().large_gather_slots),
      courier_(rank.groups.control(), pool_.size(),
               rank.add_track("gather modules")) {
  for (const Message& message : messages_)
    part_bytes_.push_back(
        bytes_of_counts(message.counts, rank.store.parameter_bytes()));
}

void Gatherer::begin(std::span<const int32_t> uses) {
  for (int32_t module : uses) require_module("begin_step", module);
  publisher_.send_held();
  if (num_released_ != std::ssize(uses_))
    throw UsageError(cat("begin_step: ", std::ssize(uses_) - num_released_,
                         " uses of the step before are not over"));
  num_before_ += std::ssize(uses_);
  num_posted_ = num_asked_ = num_released_ = 0;
  uses_.clear();
  for (int32_t module : uses)
    uses_.push_back({module, pool_.next(table_.is_large(module))});
  post_ahead();
}

int64_t Gatherer::horizon() const {
  const int64_t all = std::ssize(uses_);
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
  for (; num_posted_ < horizon(); ++num_posted_) {
    Use& use = uses_[index(num_posted_)];
    if (pool_.is_taken(use.slot)) return;
    pool_.take(use.slot);
    count(rank_.track, "gather slots", pool_.num_taken());
    use.gather = courier_.run(
        "gather",
        [this, module = use.module, slot = use.slot,
         id = num_before_ + num_posted_](Communicator&, const Call&) {
          gather(module, slot, id);
        },
        {.label = rank_.label_of(use.module)});
  }
}

// Nobody but compute itself could free what it would wait for.
void Gatherer::require_room(int32_t module) const {
  if (slot_of_module_[index(module)] >= 0)
    throw UsageError(cat("wait_params: ", rank_.label_of(module),
                         " is in use and was not released"));
  if (num_posted_ == num_asked_ &&
      pool_.is_taken(uses_[index(num_asked_)].slot))
    throw UsageError(cat("wait_params: ", rank_.label_of(module), ", but ",
                         num_asked_ - num_released_,
                         " modules are in use and there are ",
                         pool_.size(table_.is_large(module)), " slots"));
}

void Gatherer::require_over() const {
  if (num_released_ != std::ssize(uses_))
    throw UsageError(cat("step: ", std::ssize(uses_) - num_released_,
                         " uses of modules are not over"));
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
  const bool is_left = num_asked_ < std::ssize(uses_);
  if (!is_left || uses_[index(num_asked_)].module != module)
    throw UsageError(
        cat("wait_params: ", rank_.label_of(module), ", but ",
            is_left ? cat("the next use that begin_step said is of ",
                          rank_.label_of(uses_[index(num_asked_)].module))
                    : "no use is left of what begin_step said"));
  require_room(module);
  const int64_t number = num_asked_++;
  post_ahead();
  Use& use = uses_[index(number)];
  if (!use.gather.done()) {
    const WaitWatch watch(rank_, rank_.times.waited_for_parameters);
    const Span span(rank_.track, "wait for parameters", rank_.label_of(module));
    use.gather.wait();
    flow_end(rank_.track, "parameters", num_before_ + number);
  }
  use.gather.wait();  // may have failed
  slot_of_module_[index(module)] = use.slot;
}

std::byte* Gatherer::parameter(int32_t tensor) const {
  const int32_t module = table_.module(tensor);
  CANZONA_CHECK(module >= 0, "tensor ", tensor, " is not on this rank");
  const int64_t slot = slot_of_module_[index(module)];
  if (slot < 0)
    throw UsageError(cat("parameter ", quoted(rank_.tensor(tensor).name),
                         " is used outside of wait_params and release_params "
                         "of its module"));
  return rank_.store.gather_slot(slot) +
         table_.offset[index(tensor)] * rank_.store.parameter_bytes();
}

void Gatherer::release(int32_t module) {
  require_module("release_params", module);
  int64_t& slot = slot_of_module_[index(module)];
  if (slot < 0)
    throw UsageError(
        cat("release_params: ", rank_.label_of(module), " is not in use"));
  pool_.release(slot);
  count(rank_.track, "gather slots", pool_.num_taken());
  slot = -1;
  ++num_released_;
  post_ahead();
}

void Gatherer::gather(int32_t module, int64_t slot, int64_t id) {
  {
    const Courier::Pause pause(courier_);
    publisher_.wait_elsewhere(module);
  }
  const Span span(courier_.track(), "gather", rank_.label_of(module));
  for (int32_t bucket : table_.buckets[index(module)])
    gather_bucket(module, bucket, rank_.store.gather_slot(slot));
  flow_begin(courier_.track(), "parameters", id);
}

void Gatherer::gather_bucket(int32_t module, int32_t bucket, std::byte* slot) {
  const int64_t size = rank_.store.parameter_bytes();
  const Message& message = messages_[index(bucket)];
  const Extent at_rest = rank_.layout.parameters.buckets[index(bucket)].all;
  std::byte* arrival = message.direct ? slot + message.in_slot() * size
                                      : rank_.store.parameter_staging();
  rank_.groups.parameters()->all_gather_v(
      {rank_.store.parameter(at_rest.first), index(at_rest.count * size)},
      part_bytes_[index(bucket)], {arrival, index(message.num_elements * size)},
      {.label = rank_.label_of(module)});
  if (message.direct) return;
  const Courier::Pause pause(courier_);
  copy_there(rank_.wire_ops(), slot, arrival, message.copies, size);
}

}  // namespace canzona
