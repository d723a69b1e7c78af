// Clocks for measurements. A thread's CPU time is not affected by other load on
// the machine; several threads can only be timed by wall time.
#pragma once

#include <time.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "canzona/base/rooms.h"
#include "canzona/base/text.h"

namespace canzona::measure {

inline double seconds_on(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}
inline double thread_cpu_seconds() {
  return seconds_on(CLOCK_THREAD_CPUTIME_ID);
}
inline double wall_seconds() { return seconds_on(CLOCK_MONOTONIC); }

// Returns the seconds that `work` takes: CPU time if a single thread does it.
template <class Work>
double seconds_of(int num_threads, const Work& work) {
  const auto now = num_threads == 1 ? thread_cpu_seconds : wall_seconds;
  const double start = now();
  work();
  return now() - start;
}

// Is told what is being measured, for a line that people see.
using Progress = std::function<void(const std::string& what)>;

// Times the phases of a run before its first step and reports them.
//
//   Phases phases(progress);
//   phases.begin("plan");
//   phases.begin("parameters");   // "beginning: plan 10 ms, parameters …"
//   phases.end();
//
// One thread at a time.

struct Phase {
  std::string name;
  double seconds = 0;
};

inline double total_seconds(const std::vector<Phase>& phases) {
  double seconds = 0;
  for (const Phase& phase : phases) seconds += phase.seconds;
  return seconds;
}

class Phases {
 public:
  explicit Phases(Progress progress) : progress_(std::move(progress)) {}

  // Ends the previous phase.
  void begin(const std::string& name) {
    end();
    progress_(cat("beginning: ", text(), name, " …"));
    current_ = name;
    began_ = wall_seconds();
  }
  void end() {
    if (current_.empty()) return;
    done_.push_back({current_, wall_seconds() - began_});
    current_.clear();
  }

  const std::vector<Phase>& done() const { return done_; }

 private:
  std::string text() const {
    std::string text;
    for (const Phase& phase : done_)
      text += cat(phase.name, " ", human_seconds(phase.seconds), ", ");
    return text;
  }

  Progress progress_;
  std::vector<Phase> done_;
  std::string current_;
  double began_ = 0;
};

}  // namespace canzona::measure
