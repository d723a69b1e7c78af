// Weights give the decoder its parameters and gradients: a runtime in training,
// plain arrays in tests. Numbers are those of the model's tensors and modules
// (0 the embedding, 1 … layers, then the head).
//
// Parameters may be there for a use alone, and gradients may leave with every
// micro-batch:
//
//   weights.wait(3);                  // before each forward and each backward
//   const float* w = weights.parameter(tensor);
//   float* dw = weights.gradient(tensor);
//   weights.ready(tensor, last);      // dw may not be used any more
//   weights.release(3);               // nor may w
//
// One thread uses it.
#pragma once

#include <cstdint>

namespace canzona {

template <class Real>
class Weights {
 public:
  virtual ~Weights() = default;

  // Until the module's parameters are there; called before each of its uses.
  virtual void wait(int32_t module) = 0;
  // After each use.
  virtual void release(int32_t module) = 0;
  // This rank's shard, row-major; until its module is released.
  virtual const Real* parameter(int32_t tensor) = 0;
  // A micro-batch's gradient is added to it, until it is announced.
  virtual Real* gradient(int32_t tensor) = 0;
  // Everything is added that comes before this tensor's gradient may leave;
  // `last`: nothing more comes in this step. Once for each tensor of the
  // micro-batch, or of those that share a use, also where nothing was added.
  virtual void ready(int32_t tensor, bool last) = 0;
};

// The announcement of a micro-batch's gradients when they are complete.
enum class Announce {
  kNothing,  // another one adds to them first
  kPart,     // more micro-batches follow in this step
  kLast
};

template <class Real>
void announce(Weights<Real>& weights, int32_t tensor, Announce what) {
  if (what != Announce::kNothing)
    weights.ready(tensor, what == Announce::kLast);
}

}  // namespace canzona
