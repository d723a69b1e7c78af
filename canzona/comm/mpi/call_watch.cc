#include "canzona/comm/mpi/call_watch.h"

#include <utility>

namespace canzona {

int CallEras::tick() {
  if (inside_[(era_.load() + 1) % 2].load() != 0) return ++ticks_;
  era_.fetch_add(1);
  return ticks_ = 0;
}

CallWatch::CallWatch(Hooks hooks, CallLimits limits)
    : hooks_(std::move(hooks)), limits_(limits), thread_([this] { run(); }) {}

CallWatch::~CallWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void CallWatch::run() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, limits_.tick, [&] { return is_over_; })) {
    const int ticks = eras_.tick();
    if (ticks < limits_.ticks_after_end) continue;
    if (ticks < limits_.ticks && !hooks_.peer_has_ended()) continue;
    hooks_.give_up(ticks * limits_.tick);
    return;
  }
}

}  // namespace canzona
