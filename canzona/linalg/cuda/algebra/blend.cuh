// Nesterov's blend and the scale of a load, as all kernels that look at the
// numbers of a load compute them.
#pragma once

#include "canzona/linalg/cuda/algebra/algebra.h"
#include "canzona/linalg/cuda/exact.cuh"

namespace canzona {
namespace {

template <class Real>
struct BlendCoefficients {
  Real keep, add, from_grad, from_momentum;

  __device__ explicit BlendCoefficients(const double* blend)
      : keep(static_cast<Real>(blend[0])),
        add(static_cast<Real>(blend[1])),
        from_grad(static_cast<Real>(blend[2])),
        from_momentum(static_cast<Real>(blend[3])) {}
};

template <class Real>
__device__ Real advance(const BlendCoefficients<Real>& k, Real momentum,
                        Real grad) {
  return add(mul(k.keep, momentum), mul(k.add, grad));
}

template <class Real>
__device__ Real blended(const BlendCoefficients<Real>& k, Real momentum,
                        Real grad) {
  return add(mul(k.from_grad, grad), mul(k.from_momentum, momentum));
}

// One over the enlarged norm, times the peak that squares were multiplied by; 0
// for zeros.
__device__ inline double scale_of(double sum, double peak,
                                  const ScaleRule& rule) {
  const double enlarged = rule.factor * sqrt(sum);
  const double epsilon = rule.epsilon * peak;
  const double divisor =
      rule.add_epsilon ? enlarged + epsilon : fmax(enlarged, epsilon);
  const bool is_nan = !(sum == sum);
  return is_nan ? sum : sum == 0 ? 0 : peak / divisor;
}

}  // namespace
}  // namespace canzona
