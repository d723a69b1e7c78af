// The decoder's parameters and gradients as a runtime holds them.
//
//   RuntimeWeights weights(world, runtime, trace);
//   Decoder<float> decoder(config, model, parallel, engine, weights);
//   weights.refresh();
//
// Where the head is the embedding and lies on another pipeline stage than it,
// the last stage borrows the embedding: the first stage sends it before the
// step, and gets the head's gradient before its own is announced for the last
// time in the step.
//
// All ranks make theirs at once. One thread; world and runtime outlive it.
#pragma once

#include <memory>
#include <vector>

#include "canzona/model/weights.h"
#include "canzona/runtime/runtime.h"
#include "canzona/train/module_clock.h"
#include "canzona/train/stage_links.h"

namespace canzona {

class RuntimeWeights : public Weights<float> {
 public:
  // `trace` may be null.
  RuntimeWeights(Communicator& world, Runtime& runtime, Trace* trace);

  // Before the first forward after new parameters, on all ranks.
  void refresh();
  // Numbers that a rank keeps here to borrow or lend the embedding.
  static int64_t extra_elements(const Plan& plan, const Coordinates& place);
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
