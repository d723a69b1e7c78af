// The core of a rank: the thread that computes, and background threads that
// copy.
//
//   Processor processor(events, slowdown);
//   processor.start(seconds, [&] { … });   // compute
//   processor.copy(seconds, [&] { … });    // a background thread, beside it
//
// Each thread that works slows every other down: among n of them a second of
// work takes 1 + slowdown · (n - 1) seconds. 0: all have cores of their own;
// 1: they take turns on one. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "canzona/sim/events.h"

namespace canzona {

class Processor {
 public:
  Processor(EventQueue& events, double slowdown)
      : events_(events), slowdown_(slowdown) {}

  bool is_busy() const { return is_busy_; }

  // It is not busy; `done` is called at the end.
  void start(double seconds, std::function<void()> done);
  void copy(double seconds, std::function<void()> done);

 private:
  struct Job {
    double left = 0;  // seconds of work
    std::function<void()> done;
  };

  double speed() const;
  void add(Job job);
  void advance();
  void schedule();
  void finish_shortest();

  EventQueue& events_;
  double slowdown_;
  bool is_busy_ = false;
  std::vector<Job> jobs_;
  double since_ = 0;    // when their `left` was true
  int64_t number_ = 0;  // of the event that counts: earlier ones are void
};

}  // namespace canzona
