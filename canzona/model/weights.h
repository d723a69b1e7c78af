// Weights provide the decoder's parameters and gradients: from a runtime in
// training, from plain arrays in tests. Tensors and modules are numbered as in
// the model (0 is the embedding, 1 … the layers, then the head).
//
// Parameters may be available during a use only, and gradients may leave with
// every micro-batch:
//
//   weights.wait(3);                  // before each forward and each backward
//   const float* w = weights.parameter(tensor);
//   float* dw = weights.gradient(tensor);
//   weights.ready(tensor, last);      // dw may not be used any more
//   weights.release(3);               // nor may w
//
// One thread at a time.
#pragma once

#include <cstdint>

namespace canzona {

template <class Real>
class Weights {
 public:
  virtual ~Weights() = default;

  // Waits until the module's parameters are available; called before each use.
  virtual void wait(int32_t module) = 0;
  // Called after each use.
  virtual void release(int32_t module) = 0;
  // This rank's shard, row-major, valid until its module is released.
  virtual const Real* parameter(int32_t tensor) = 0;
  // The gradient to which a micro-batch adds, valid until it is announced.
  virtual Real* gradient(int32_t tensor) = 0;
  // Announces that this tensor's gradient is complete for the micro-batch;
  // `last`: nothing more is added in this step. Called once for each tensor of
  // a micro-batch, or of those that share a use, even if nothing was added.
  virtual void ready(int32_t tensor, bool last) = 0;
};

// How a micro-batch's gradients are announced when they are complete.
enum class Announce {
  kNothing,  // another micro-batch adds to them first
  kPart,     // more micro-batches follow in this step
  kLast
};

template <class Real>
void announce(Weights<Real>& weights, int32_t tensor, Announce what) {
  if (what != Announce::kNothing)
    weights.ready(tensor, what == Announce::kLast);
}

}  // namespace canzona
