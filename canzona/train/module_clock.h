// How long each module computes, forward and backward, without what was waited
// for inside.
//
//   ModuleClock clock(model, trace, rank);
//   clock.begin(module, waited);      // its parameters are there
//   clock.gradient_asked();           // so it is a backward
//   clock.end(module, waited);
//
// A trace gets a span of each, waits included. Of modules that are in use
// beside each other (a tied head and the embedding) the one that began last has
// the time. One thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/names.h"
#include "canzona/trace/trace.h"

namespace canzona {

class ModuleClock {
 public:
  struct Pass {
    double seconds = 0;
    int64_t count = 0;
    double mean() const {
      return count > 0 ? seconds / static_cast<double>(count) : 0;
    }
  };
  struct Passes {
    Pass forward;
    Pass backward;
  };

  // `trace`, which may be null, outlives it.
  ModuleClock(const Model& model, Trace* trace, int rank)
      : modules_(static_cast<size_t>(num_modules(model))) {
    if (trace == nullptr) return;
    track_ = trace->add_track(rank, "modules");
    for (int32_t m = 0; m < num_modules(model); ++m)
      labels_.push_back(trace->keep(module_name(model, m)));
  }

  // `waited`: seconds since the beginning of the run.
  void begin(int32_t module, double waited) {
    current_ = module;
    is_backward_ = false;
    begin_ = steady_nanoseconds();
    waited_ = waited;
  }
  void gradient_asked() { is_backward_ = true; }
  void end(int32_t module, double waited) {
    if (module != current_) return;
    Passes& passes = modules_[static_cast<size_t>(module)];
    Pass& pass = is_backward_ ? passes.backward : passes.forward;
    const int64_t end = steady_nanoseconds();
    pass.seconds +=
        1e-9 * static_cast<double>(end - begin_) - (waited - waited_);
    ++pass.count;
    if (track_ != nullptr)
      track_->add_span(is_backward_ ? "backward" : "forward",
                       labels_[static_cast<size_t>(module)], begin_, end);
    current_ = -1;
  }

  // Forgets what was measured.
  void reset() { modules_.assign(modules_.size(), {}); }
  const std::vector<Passes>& modules() const { return modules_; }

 private:
  std::vector<Passes> modules_;
  Track* track_ = nullptr;
  std::vector<std::string_view> labels_;  // by module, if there is a track
  int32_t current_ = -1;
  bool is_backward_ = false;
  int64_t begin_ = 0;
  double waited_ = 0;
};

}  // namespace canzona
