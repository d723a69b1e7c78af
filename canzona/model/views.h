// Short words for the products of the decoder.
//
//   const Linear<float> o{engine, weights, tensors.o, hidden, width};
//   o.apply(y, x, tokens);                // y = x·Wᵀ
//   o.add_gradient(dy, x, tokens);        // dW += dyᵀ·x
//   o.apply_transposed(dx, dy, tokens);   // dx = dy·W
#pragma once

#include <cstdint>

#include "canzona/linalg/engine.h"
#include "canzona/model/weights.h"

namespace canzona {

// Rows that lie `stride` apart.
template <class Real>
auto strided(Real* data, int64_t rows, int64_t cols, int64_t stride) {
  auto view = matrices(data, rows, cols);
  view.row_stride = stride;
  return view;
}

// A tensor as a map from `in` to `out` numbers, for rows of tokens.
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
