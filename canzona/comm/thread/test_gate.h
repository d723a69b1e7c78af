// For tests: a gate that holds operations until it is told to release them, so
// that a test creates an order of events instead of waiting for it.
//
//   TestGate gate;
//   RunOptions options;
//   options.world.gate = &gate;
//   gate.hold([](const auto& p) { return p.label == "gather 7"; });
//   …
//   gate.wait_until_held(1);  // everything before it has passed
//   EXPECT_FALSE(work.done());
//   gate.release();
//
// Any thread may call. Use one gate per world.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string_view>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/thread/thread_world.h"

namespace canzona::comm {

class TestGate final : public Gate {
 public:
  struct Passage {
    std::string_view group;
    Operation operation;
    std::string_view label;
    int world_rank;
  };
  // Called under the gate's lock: it must not use the gate.
  using Predicate = std::function<bool(const Passage&)>;

  // Replaces the last predicate: held operations continue unless they match
  // this one.
  void hold(Predicate predicate) {
    const std::lock_guard lock(mutex_);
    predicate_ = std::move(predicate);
    changed_.notify_all();
  }
  // Releases all held operations and holds no others.
  void release() { hold({}); }

  // Waits until at least this many are held at once; throws PeerLost if the
  // world ends.
  void wait_until_held(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ || num_held_ >= count; });
    if (num_held_ < count)
      throw PeerLost(cat("the world has ended, ", num_held_, " of ", count,
                         " operations were held"));
  }
  // True if the world has ended.
  bool has_ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  int num_held() const {
    const std::lock_guard lock(mutex_);
    return num_held_;
  }

  void pass(std::string_view group, Operation operation, std::string_view label,
            int world_rank) override {
    const Passage passage{group, operation, label, world_rank};
    std::unique_lock lock(mutex_);
    const auto is_free = [&] {
      return ended_ || !predicate_ || !predicate_(passage);
    };
    if (is_free()) return;
    ++num_held_;
    changed_.notify_all();
    changed_.wait(lock, is_free);
    --num_held_;
  }
  void open_for_good() noexcept override {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Predicate predicate_;
  int num_held_ = 0;
  bool ended_ = false;
};

}  // namespace canzona::comm
