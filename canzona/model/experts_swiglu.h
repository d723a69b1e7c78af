// silu(gate)·up, of rows that hold gate and then up.
//
//   swiglu(act, gate_up, rows, ffn);
//   swiglu_backward(act, gate_up, rows, ffn);
#pragma once

#include <cstdint>

namespace canzona {

// act = gate·sigmoid(gate)·up; gate_up is rows x 2·ffn.
template <class Real>
void swiglu(Real* act, const Real* gate_up, int64_t rows, int64_t ffn);

// act: its gradient becomes the value; gate_up: becomes its gradient.
template <class Real>
void swiglu_backward(Real* act, Real* gate_up, int64_t rows, int64_t ffn);

}  // namespace canzona
