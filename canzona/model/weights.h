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
// For a decoder on a device, parameters and gradients are in the device's
// memory, and waiting and releasing order the work on the engine's stream: this
// process does not wait.
//
// One thread at a time.
#pragma once

#include <cstdint>

#include "canzona/linalg/engine.h"
#include "canzona/shapes/tensor.h"

namespace canzona::model {

template <class Real, class Gradient = Real>
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
  virtual Gradient* gradient(int32_t tensor) = 0;
  // Announces that this tensor's gradient is complete for the micro-batch;
  // `last`: nothing more is added in this step. Called once for each tensor of
  // a micro-batch, or of those that share a use, even if nothing was added.
  virtual void ready(int32_t tensor, bool last) = 0;
};

// The weights of a decoder on a device: bf16 with fp32 gradients.
using DeviceWeights = Weights<uint16_t, float>;

// How a micro-batch's gradients are announced when they are complete.
enum class Announce {
  kNothing,  // another micro-batch adds to them first
  kPart,     // more micro-batches follow in this step
  kLast
};

template <class Real, class Gradient>
void announce(Weights<Real, Gradient>& weights, int32_t tensor, Announce what) {
  if (what != Announce::kNothing)
    weights.ready(tensor, what == Announce::kLast);
}

// The indices of the decoder's tensors in its model.
//
//   LayerTensors t = layer_tensors(shapes, 3);
//   weights.parameter(t.qkv);
struct LayerTensors {
  int32_t input_norm = -1;
  int32_t qkv = -1;
  int32_t query_norm = -1;  // -1: queries and keys are not normed
  int32_t key_norm = -1;
  int32_t o = -1;
  int32_t post_norm = -1;
  int32_t gate_up = -1;  // -1: the layer has experts
  int32_t down = -1;
};

struct OuterTensors {
  int32_t embedding = -1;
  int32_t norm = -1;
  int32_t head = -1;  // the embedding, if it is tied
};

// Throws InternalError if the model has no such tensor.
LayerTensors layer_tensors(const Model& shapes, int64_t layer,
                           bool has_experts);
OuterTensors outer_tensors(const Model& shapes, bool tied);

// Shorthands for the products of the decoder.
//
//   const Linear<float> o{engine, weights, tensors.o, hidden, width};
//   o.apply(y, x, tokens);                // y = x·Wᵀ
//   o.add_gradient(dy, x, tokens);        // dW += dyᵀ·x
//   o.apply_transposed(dx, dy, tokens);   // dx = dy·W

// Rows that are `stride` apart.
template <class Real>
auto strided(Real* data, int64_t rows, int64_t cols, int64_t stride) {
  auto view = matrices(data, rows, cols);
  view.row_stride = stride;
  return view;
}

// A tensor as a linear map from `in` to `out` numbers, for rows of tokens.
template <class Real>
struct Linear {
  Engine& engine;
  Weights<Real>& weights;
  int32_t tensor;
  int64_t out;
  int64_t in;

  void apply(Real* y, const Real* x, int64_t rows) const {
    engine.product(matrices(y, rows, out), 1, matrices(x, rows, in), Op::kNone,
                   weight(), Op::kTranspose, 0);
  }
  void apply_transposed(Real* dx, const Real* dy, int64_t rows) const {
    engine.product(matrices(dx, rows, in), 1, matrices(dy, rows, out),
                   Op::kNone, weight(), Op::kNone, 0);
  }
  void add_gradient(const Real* dy, const Real* x, int64_t rows) const {
    engine.product(matrices(weights.gradient(tensor), out, in), 1,
                   matrices(dy, rows, out), Op::kTranspose,
                   matrices(x, rows, in), Op::kNone, 1);
  }

 private:
  ConstMatrices weight() const {
    return matrices(weights.parameter(tensor), out, in);
  }
};

}  // namespace canzona::model
