// The arithmetic of Adam and of applying an update, for one tensor and many.
#pragma once

#include <array>

#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/exact.cuh"
#include "canzona/linalg/cuda/rounding.cuh"
#include "canzona/linalg/stages.h"

namespace canzona {
namespace {

// p = (p·keep_before - step·u)·keep_after
template <class Real>
struct Applied {
  Real keep_before, step, keep_after;

  __device__ explicit Applied(const Real* scalars)
      : keep_before(scalars[0]), step(scalars[1]), keep_after(scalars[2]) {}
  __device__ Real operator()(Real p, Real u) const {
    return mul(sub(mul(p, keep_before), mul(step, u)), keep_after);
  }
  __device__ Real cautiously(Real p, Real u) const {
    const Real keep = mul(p, u) < 0 ? Real{1} : keep_before;
    return mul(sub(mul(p, keep), mul(step, u)), keep_after);
  }
};

// As kernels expect the coefficients.
std::array<double, 8> in_order(const AdamCoefficients& a) {
  return {a.m_keep,      a.m_add,     a.v_keep,     a.v_add,
          a.from_moment, a.from_grad, a.root_scale, a.epsilon};
}

template <class Real>
struct Adam {
  Real m_keep, m_add, v_keep, v_add, from_moment, from_grad, root_scale,
      epsilon;

  __device__ explicit Adam(const Real* s)
      : m_keep(s[0]),
        m_add(s[1]),
        v_keep(s[2]),
        v_add(s[3]),
        from_moment(s[4]),
        from_grad(s[5]),
        root_scale(s[6]),
        epsilon(s[7]) {}

  // Brings the moments of V elements from j on up to date; gives the quotients.
  template <int V, bool kMoment>
  __device__ Vector<Real, V> step(const Real* grad, Real* m, Real* v,
                                  int64_t j) const {
    const auto g = load<V>(grad + j);
    auto second = load<V>(v + j);
    Vector<Real, V> top;
    for (int t = 0; t < V; ++t) top.x[t] = mul(from_grad, g.x[t]);
    if constexpr (kMoment) {
      auto first = load<V>(m + j);
      for (int t = 0; t < V; ++t) {
        first.x[t] = add(mul(m_keep, first.x[t]), mul(m_add, g.x[t]));
        top.x[t] = add(mul(from_moment, first.x[t]), top.x[t]);
      }
      store<V>(m + j, first);
    }
    for (int t = 0; t < V; ++t) {
      second.x[t] =
          add(mul(v_keep, second.x[t]), mul(mul(v_add, g.x[t]), g.x[t]));
      top.x[t] =
          quotient(top.x[t], add(mul(root(second.x[t]), root_scale), epsilon));
    }
    store<V>(v + j, second);
    return top;
  }
};

}  // namespace
}  // namespace canzona
