// Times the phases of a run before its first step and reports them.
//
//   Phases phases(progress);
//   phases.begin("plan");
//   phases.begin("parameters");   // "beginning: plan 10 ms, parameters …"
//   phases.end();
//
// One thread at a time.
#pragma once

#include <string>
#include <vector>

#include "canzona/base/text.h"
#include "canzona/measure/clock.h"
#include "canzona/measure/transform.h"

namespace canzona {

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

}  // namespace canzona
