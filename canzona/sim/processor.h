// The thread that computes: one piece of work at a time, slowed down while
// background threads copy.
//
//   Processor processor(events, slowdown);
//   processor.start(seconds, [&] { … });
//   processor.copying(+1);   // a background thread begins to copy
//
// Each second that a background thread copies costs it `slowdown` seconds, but
// it never runs backwards. One thread.
#pragma once

#include <cstdint>
#include <functional>

#include "canzona/sim/events.h"

namespace canzona {

class Processor {
 public:
  Processor(EventQueue& events, double slowdown)
      : events_(events), slowdown_(slowdown) {}

  bool is_busy() const { return is_busy_; }

  // It is not busy; `done` is called at the end.
  void start(double seconds, std::function<void()> done);

  // How many background threads copy changes by so many.
  void copying(int change);

 private:
  double rate() const;
  void schedule();

  EventQueue& events_;
  double slowdown_;
  int num_copying_ = 0;
  bool is_busy_ = false;
  double left_ = 0;     // seconds of work
  double since_ = 0;    // when `left_` was true
  int64_t number_ = 0;  // of the event that counts: earlier ones are void
  std::function<void()> done_;
};

}  // namespace canzona
