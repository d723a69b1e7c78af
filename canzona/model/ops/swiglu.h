// Loops of SwiGLU (table.h).
#pragma once

#include <cstdint>

#include "canzona/model/ops/exp.h"
#include "canzona/model/ops/lanes.h"

namespace canzona {
namespace {

template <class Real>
CANZONA_INLINE inline Lanes<Real> sigmoid(Lanes<Real> x) {
  return broadcast(Real{1}) / (exp_lanes(-x) + Real{1});
}

template <class Real>
void swiglu_kernel(Real* act, const Real* gate_up, int64_t rows, int64_t ffn) {
  for (int64_t row = 0; row < rows; ++row, act += ffn, gate_up += 2 * ffn) {
    each_part<Real>(ffn, [&](int64_t i, auto part) CANZONA_INLINE {
      const Lanes<Real> gate = load(gate_up + i, part);
      const Lanes<Real> up = load(gate_up + ffn + i, part);
      store<Real>(act + i, gate * sigmoid<Real>(gate) * up, part);
    });
  }
}

// silu = gate·s; its derivative is s + silu·(1 - s).
template <class Real>
void swiglu_backward_kernel(Real* act, Real* gate_up, int64_t rows,
                            int64_t ffn) {
  for (int64_t row = 0; row < rows; ++row, act += ffn, gate_up += 2 * ffn) {
    each_part<Real>(ffn, [&](int64_t i, auto part) CANZONA_INLINE {
      const Lanes<Real> gate = load(gate_up + i, part);
      const Lanes<Real> up = load(gate_up + ffn + i, part);
      const Lanes<Real> gradient = load(act + i, part);
      const Lanes<Real> s = sigmoid<Real>(gate);
      const Lanes<Real> silu = gate * s;
      store<Real>(act + i, silu * up, part);
      store<Real>(gate_up + i,
                  gradient * up * (s + silu * (broadcast(Real{1}) - s)), part);
      store<Real>(gate_up + ffn + i, gradient * silu, part);
    });
  }
}

}  // namespace
}  // namespace canzona
