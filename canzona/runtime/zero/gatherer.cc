#include "canzona/runtime/zero/gatherer.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/base/index.h"

namespace canzona {

Gatherer::Gatherer(Rank& rank, Publisher& publisher)
    : rank_(rank),
      publisher_(publisher),
      table_(rank),
      slot_of_module_(table_.tensors.size(), -1),
      pool_(rank.store.pools().gather_slots,
            rank.store.pools().large_gather_slots),
      use_in_slot_(index(pool_.size()), -1) {
  const GroupLayouts group(rank, Resting::kParameters);
  for (size_t b = 0; b < rank.layout.parameters.buckets.size(); ++b) {
    const Message& message = messages_.emplace_back(rank, table_, b, group);
    std::vector<int64_t>& bytes = part_bytes_.emplace_back();
    for (int64_t count : message.counts())
      bytes.push_back(count * rank.store.parameter_bytes());
  }
  track_ = rank.add_track("gather modules");
  thread_ = std::thread([this] { serve(); });
}

Gatherer::~Gatherer() { close(); }

void Gatherer::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Gatherer::begin(std::span<const int32_t> uses) {
  for (int32_t module : uses) require_module("begin_step", module);
  publisher_.send_held();
  {
    const std::lock_guard lock(mutex_);
    if (num_released_ != num_uses_)
      throw UsageError(cat("begin_step: ", num_uses_ - num_released_,
                           " uses of the step before are not over"));
    first_use_ = num_uses_;
    uses_.assign(uses.begin(), uses.end());
    slot_of_use_.clear();
    for (int32_t module : uses)
      slot_of_use_.push_back(pool_.next(table_.is_large(module)));
    num_uses_ += std::ssize(uses);
  }
  changed_.notify_all();
}

int64_t Gatherer::horizon() const {
  switch (rank_.options.overlap) {
    case Overlap::kNone:
      return std::min(num_uses_, num_asked_);
    case Overlap::kMain:
      return std::min(num_uses_,
                      num_asked_ > first_use_ ? num_asked_ + 1 : num_asked_);
    case Overlap::kBackground:
      break;
  }
  return num_uses_;
}

bool Gatherer::can_gather() {
  return num_gathered_ < horizon() && !pool_.is_taken(slot_of(num_gathered_));
}

// Nobody but compute itself could free what it would wait for.
void Gatherer::require_room(int32_t module) {
  if (slot_of_module_[index(module)] >= 0)
    throw UsageError(cat("wait_params: ", table_.label(module),
                         " is in use and was not released"));
  const int64_t slot = slot_of(num_asked_);
  if (pool_.is_taken(slot) && use_in_slot_[index(slot)] < num_asked_)
    throw UsageError(cat("wait_params: ", table_.label(module), ", but ",
                         num_asked_ - num_released_,
                         " modules are in use and there are ",
                         pool_.size(table_.is_large(module)), " slots"));
}

void Gatherer::require_over() const {
  const std::lock_guard lock(mutex_);
  if (num_released_ != num_uses_)
    throw UsageError(cat("step: ", num_uses_ - num_released_,
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
  std::unique_lock lock(mutex_);
  if (num_asked_ == num_uses_ ||
      uses_[index(num_asked_ - first_use_)] != module)
    throw UsageError(
        cat("wait_params: ", table_.label(module), ", but ",
            num_asked_ == num_uses_
                ? std::string("no use is left of what begin_step said")
                : cat("the next use that begin_step said is of ",
                      table_.label(uses_[index(num_asked_ - first_use_)]))));
  require_room(module);
  const int64_t use = num_asked_++;
  changed_.notify_all();
  const auto is_there = [&] {
    return num_gathered_ > use || failure_ != nullptr;
  };
  if (!is_there()) {
    const WaitWatch watch(rank_, rank_.times.waited_for_parameters);
    const Span span(rank_.track, "wait for parameters", table_.label(module));
    changed_.wait(lock, is_there);
    flow_end(rank_.track, "parameters", use);
  }
  if (num_gathered_ <= use) std::rethrow_exception(failure_);
  slot_of_module_[index(module)] = slot_of(use);
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
  {
    const std::lock_guard lock(mutex_);
    int64_t& slot = slot_of_module_[index(module)];
    if (slot < 0)
      throw UsageError(
          cat("release_params: ", table_.label(module), " is not in use"));
    pool_.release(slot);
    count(rank_.track, "gather slots", pool_.num_taken());
    slot = -1;
    ++num_released_;
  }
  changed_.notify_all();
}

void Gatherer::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || can_gather(); });
    if (closing_ || failure_ != nullptr) return;
    const int64_t use = num_gathered_;
    pool_.take(slot_of(use));
    use_in_slot_[index(slot_of(use))] = use;
    count(track_, "gather slots", pool_.num_taken());
    const int32_t module = uses_[index(use - first_use_)];
    std::byte* slot = rank_.store.gather_slot(slot_of(use));
    lock.unlock();
    std::exception_ptr failure;
    try {
      publisher_.wait_elsewhere(module);
      const Span span(track_, "gather", table_.label(module));
      for (int32_t bucket : table_.buckets[index(module)])
        gather_bucket(module, bucket, slot);
      flow_begin(track_, "parameters", use);
    } catch (...) {
      failure = std::current_exception();
      rank_.groups.give_up(failure,
                           cat("gather ", quoted(table_.label(module))));
    }
    lock.lock();
    failure_ = failure;
    if (failure == nullptr) ++num_gathered_;
    changed_.notify_all();
    if (failure != nullptr) return;
  }
}

void Gatherer::gather_bucket(int32_t module, int32_t bucket, std::byte* slot) {
  const int64_t size = rank_.store.parameter_bytes();
  const Message& message = messages_[index(bucket)];
  const Extent at_rest = rank_.layout.parameters.buckets[index(bucket)].all;
  std::byte* arrival = message.direct() ? slot + message.in_slot() * size
                                        : rank_.store.parameter_staging();
  const int64_t begin = steady_nanoseconds();
  rank_.groups.parameters()->all_gather_v(
      {rank_.store.parameter(at_rest.first), index(at_rest.count * size)},
      part_bytes_[index(bucket)],
      {arrival, index(message.num_elements() * size)},
      {.label = table_.label(module)});
  const int64_t end = steady_nanoseconds();
  if (!message.direct()) message.to_slot(rank_.wire_ops(), slot, arrival, size);
  const std::lock_guard lock(mutex_);
  busy_ += end - begin;
}

double Gatherer::busy() const {
  const std::lock_guard lock(mutex_);
  return 1e-9 * static_cast<double>(busy_);
}

int64_t Gatherer::num_slots_used() const {
  const std::lock_guard lock(mutex_);
  return pool_.num_taken();
}

int64_t Gatherer::most_slots_used(bool large) const {
  const std::lock_guard lock(mutex_);
  return pool_.most_taken(large);
}

}  // namespace canzona
