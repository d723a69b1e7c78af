// Events in the order of their times; events of equal time run in the order in
// which they were added, so that a simulation is reproducible.
//
//   EventQueue events;
//   events.at(events.now() + 0.5, [&] { … });
//   while (events.run_next()) {}
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace canzona {

class EventQueue {
 public:
  double now() const { return now_; }

  // Requires `time` >= now().
  void at(double time, std::function<void()> action) {
    queue_.push({time, next_number_++, std::move(action)});
  }

  // Returns false if nothing is left.
  bool run_next() {
    if (queue_.empty()) return false;
    const Event event = queue_.top();
    queue_.pop();
    now_ = event.time;
    event.action();
    return true;
  }

 private:
  struct Event {
    double time = 0;
    int64_t number = 0;
    std::function<void()> action;
    bool operator<(const Event& other) const {
      return std::pair(time, number) > std::pair(other.time, other.number);
    }
  };

  std::priority_queue<Event> queue_;
  int64_t next_number_ = 0;
  double now_ = 0;
};

}  // namespace canzona
