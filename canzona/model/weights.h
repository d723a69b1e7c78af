// Where the decoder's parameters and gradients come from: a runtime in
// training, plain arrays in tests. Numbers are those of the model's tensors
// and modules (0 the embedding, 1 … layers, then the head).
//
// One thread uses it.
#pragma once

#include <cstdint>

namespace canzona {

template <class Real>
class Weights {
 public:
  virtual ~Weights() = default;

  // Until the module's parameters are there; called before each of its uses
  // in forward.
  virtual void wait(int32_t module) = 0;
  // This rank's shard, row-major.
  virtual const Real* parameter(int32_t tensor) = 0;
  // What a micro-batch gives is added to it.
  virtual Real* gradient(int32_t tensor) = 0;
  // Nothing more is added to it in this step.
  virtual void ready(int32_t tensor) = 0;
};

}  // namespace canzona
