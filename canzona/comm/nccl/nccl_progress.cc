#include "canzona/comm/nccl/nccl_progress.h"

#include <algorithm>
#include <utility>

#include "canzona/base/text.h"

namespace canzona {

NcclProgress::NcclProgress(uint64_t group, Lane& lane)
    : group_(group), lane_(lane), ring_(64) {
  for (Entry& each : ring_) each.mark = lane.make_mark();
}

void NcclProgress::set_name(std::string_view name) {
  const std::lock_guard lock(mutex_);
  if (name_ != name) name_ = name;
}

std::string NcclProgress::name() const {
  const std::lock_guard lock(mutex_);
  return name_;
}

void NcclProgress::begin(int64_t sequence) {
  const std::lock_guard lock(mutex_);
  counts_.issued = sequence - 1;
}

// When all entries are taken, the last operation's mark is moved to this one:
// by the lane's order it is later than all others.
void NcclProgress::issued(const IssuedOperation& operation) {
  const std::lock_guard lock(mutex_);
  counts_.issued = operation.sequence;
  if (std::cmp_equal(end_ - first_, ring_.size())) drop_ended();
  if (std::cmp_less(end_ - first_, ring_.size())) ++end_;
  Entry& last = entry(end_ - 1);
  last.operation = operation;
  last.deadline = deadline_after(operation.time);
  lane_.record(*last.mark);
}

// An operation's time starts when those before it have ended, because a host
// may run far ahead of its device.
void NcclProgress::drop_ended() {
  while (first_ < end_ && entry(first_).mark->reached()) {
    counts_.ended = entry(first_).operation.sequence;
    if (++first_ == end_) return;
    Entry& next = entry(first_);
    next.deadline =
        std::max(next.deadline, deadline_after(next.operation.time));
  }
}

NcclProgress::Counts NcclProgress::counts() {
  const std::lock_guard lock(mutex_);
  drop_ended();
  return counts_;
}

std::optional<IssuedOperation> NcclProgress::late(Deadline now) {
  const std::lock_guard lock(mutex_);
  drop_ended();
  if (first_ == end_ || now < entry(first_).deadline) return {};
  return entry(first_).operation;
}

bool NcclProgress::is_busy() {
  const std::lock_guard lock(mutex_);
  drop_ended();
  return first_ < end_;
}

std::string NcclProgress::under_way() {
  const std::lock_guard lock(mutex_);
  drop_ended();
  if (first_ == end_) return {};
  const IssuedOperation& what = entry(first_).operation;
  return cat(to_string(what.operation), " #", what.sequence, " ",
             quoted(what.label.view()), " of ", name_);
}

}  // namespace canzona
