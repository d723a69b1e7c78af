#include "canzona/comm/thread/thread_world.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

std::vector<int> first_ranks(int size) {
  if (size < 1)
    throw UsageError(cat("a world of ", size, " ranks, expected at least 1"));
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

ThreadGroup::ThreadGroup(std::vector<int> world_ranks)
    : ranks(std::move(world_ranks)), entered(ranks.size()), uses(ranks.size()) {
  for (size_t i = 0; i < ranks.size(); ++i) inboxes.emplace_back(ranks.size());
}

ThreadWorld::ThreadWorld(int size, const Options& options)
    : options_(options),
      everyone_(std::make_shared<ThreadGroup>(first_ranks(size))),
      groups_{everyone_} {
  CANZONA_CHECK(
      options_.clocks.empty() || std::cmp_equal(options_.clocks.size(), size),
      options_.clocks.size(), " clocks for ", size, " ranks");
  if (!options_.link) return;
  schedule_ = std::make_unique<LinkSchedule>(*options_.link, size);
  pacer_ = std::make_unique<LanePacer>(*schedule_, clock(0));
  if (options_.on_pacer) options_.on_pacer(*pacer_);
}

LinkClock* ThreadWorld::clock(int world_rank) const {
  if (options_.clocks.empty()) return nullptr;
  return options_.clocks[static_cast<size_t>(world_rank)];
}

// A sleeping thread has checked aborted() under its inbox's mutex; holding that
// mutex once makes sure that it checks again.
void ThreadWorld::abort(std::string_view reason) {
  std::lock_guard lock(mutex_);
  if (aborted()) return;
  reason_ = reason;
  aborted_.store(true, std::memory_order_release);
  for (const std::weak_ptr<ThreadGroup>& weak : groups_) {
    const std::shared_ptr<ThreadGroup> group = weak.lock();
    if (group == nullptr) continue;
    for (Inbox& inbox : group->inboxes) {
      { std::lock_guard look(inbox.mutex); }
      inbox.changed.notify_all();
    }
  }
  if (pacer_ != nullptr) pacer_->release();
  if (options_.gate != nullptr) options_.gate->open_for_good();
}

std::string ThreadWorld::abort_reason() const {
  std::lock_guard lock(mutex_);
  return reason_;
}

std::shared_ptr<ThreadGroup> ThreadWorld::subgroup(
    const ThreadGroup& parent, int64_t id, int color,
    std::span<const int> members) {
  std::lock_guard lock(mutex_);
  const Key key{&parent, id, color};
  Founding& founding = foundings_[key];
  if (founding.group == nullptr) {
    std::vector<int> ranks;
    for (int member : members)
      ranks.push_back(parent.ranks[static_cast<size_t>(member)]);
    founding = {std::make_shared<ThreadGroup>(ranks), members.size()};
    std::erase_if(groups_, [](const auto& weak) { return weak.expired(); });
    groups_.push_back(founding.group);
  }
  std::shared_ptr<ThreadGroup> group = founding.group;
  if (--founding.num_missing == 0) foundings_.erase(key);
  return group;
}

}  // namespace canzona
