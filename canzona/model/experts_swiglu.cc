#include "canzona/model/experts_swiglu.h"

#include <cmath>

namespace canzona {

template <class Real>
void swiglu(Real* act, const Real* gate_up, int64_t rows, int64_t ffn) {
  for (int64_t r = 0; r < rows; ++r) {
    const Real* gate = gate_up + r * 2 * ffn;
    const Real* up = gate + ffn;
    for (int64_t i = 0; i < ffn; ++i)
      act[r * ffn + i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  }
}

template <class Real>
void swiglu_backward(Real* act, Real* gate_up, int64_t rows, int64_t ffn) {
  for (int64_t r = 0; r < rows; ++r) {
    Real* gate = gate_up + r * 2 * ffn;
    Real* up = gate + ffn;
    for (int64_t i = 0; i < ffn; ++i) {
      const Real sigmoid = 1 / (1 + std::exp(-gate[i]));
      const Real silu = gate[i] * sigmoid;
      const Real d = act[r * ffn + i];
      act[r * ffn + i] = silu * up[i];
      gate[i] = d * up[i] * sigmoid * (1 + gate[i] * (1 - sigmoid));
      up[i] = d * silu;
    }
  }
}

template void swiglu<float>(float*, const float*, int64_t, int64_t);
template void swiglu<double>(double*, const double*, int64_t, int64_t);
template void swiglu_backward<float>(float*, float*, int64_t, int64_t);
template void swiglu_backward<double>(double*, double*, int64_t, int64_t);

}  // namespace canzona
