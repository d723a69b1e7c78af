// The indices of the decoder's tensors in its model.
//
//   LayerTensors t = layer_tensors(shapes, 3);
//   weights.parameter(t.qkv);
#pragma once

#include <cstdint>

#include "canzona/linalg/engine.h"
#include "canzona/model/weights.h"
#include "canzona/shapes/tensor.h"

namespace canzona {

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

}  // namespace canzona
