// A ModuleClock measures how long each module computes, forward and backward,
// without the time that it waited.
//
//   ModuleClock clock(model, trace, rank);
//   clock.begin(module, waited);      // its parameters are there
//   clock.gradient_asked();           // so it is a backward
//   clock.end(module, waited);
//
// A trace gets a span for each, including waits. If modules are in use at the
// same time (a tied head and the embedding), the time counts for the one that
// began last. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "canzona/model/weights.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/runtime/runtime.h"
#include "canzona/trace/trace.h"
#include "canzona/train/stage_links.h"

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

  // `trace` may be null; otherwise it must outlive this.
  ModuleClock(const Model& model, Trace* trace, int rank)
      : modules_(static_cast<size_t>(num_modules(model))) {
    if (trace == nullptr) return;
    track_ = trace->add_track(rank, "modules");
    for (int32_t m = 0; m < num_modules(model); ++m)
      labels_.push_back(trace->keep(module_name(model, m)));
  }

  // `waited` is in seconds since the beginning of the run.
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
      track_->add_span({is_backward_ ? "backward" : "forward",
                        labels_[static_cast<size_t>(module)]},
                       begin_, end);
    current_ = -1;
  }

  // Discards all measurements.
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

// The decoder's parameters and gradients as a runtime holds them.
//
//   RuntimeWeights weights(world, runtime, trace);
//   Decoder<float> decoder(config, model, parallel, engine, weights);
//   weights.refresh();
//
// If the head is the embedding but lies on another pipeline stage, the last
// stage borrows the embedding: the first stage sends it before the step, and
// receives the head's gradient before its own is announced for the last time in
// the step.
//
// All ranks must construct theirs at the same time. One thread at a time; world
// and runtime must outlive it.
class RuntimeWeights : public Weights<float> {
 public:
  // `trace` may be null.
  RuntimeWeights(Communicator& world, Runtime& runtime, Trace* trace);

  // Call it on all ranks before the first forward after new parameters.
  void refresh();
  // Returns how many numbers a rank keeps here to borrow or lend the embedding.
  static int64_t extra_elements(const Plan& plan, const Coordinates& at);
  double waited() const;
  double busy() const;
  ModuleClock& clock() { return clock_; }

  void wait(int32_t module) override {
    runtime_.wait_params(module);
    clock_.begin(module, runtime_.times().waited());
  }
  const float* parameter(int32_t tensor) override;
  float* gradient(int32_t tensor) override;
  void release(int32_t module) override {
    clock_.end(module, runtime_.times().waited());
    runtime_.release_params(module);
  }
  void ready(int32_t tensor, bool last) override;

 private:
  bool shares(int32_t tensor) const { return tensor == shared_; }
  void add_head_gradient();

  Runtime& runtime_;
  ModuleClock clock_;
  int32_t shared_ = -1;  // the embedding, if two stages use it
  bool borrows_ = false;
  std::unique_ptr<OneWay> weights_, gradients_;
  std::vector<float> borrowed_, gradient_;  // at the last stage
  std::vector<float> arrived_;              // at the first
  Work gradient_sent_;
};

}  // namespace canzona
