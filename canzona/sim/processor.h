// A rank's core: the computing thread, and background threads that copy.
//
//   Processor processor(events, slowdown);
//   processor.start(seconds, [&] { … });   // compute
//   processor.copy(seconds, [&] { … });    // a background thread, beside it
//
// Active threads slow each other down: with n of them, a second of work takes 1
// + slowdown · (n - 1) seconds. With 0, all have their own cores; with 1, they
// share one. One thread at a time.
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

  // Requires that it is not busy; `done` is called at the end.
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
  double since_ = 0;    // when `left` was last updated
  int64_t number_ = 0;  // of the valid event; earlier ones are void
};

}  // namespace canzona
