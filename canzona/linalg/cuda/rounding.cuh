// Numbers rounded to bf16 as they are stored.
#pragma once

#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/exact.cuh"

namespace canzona {
namespace {

template <int V, class Real>
__device__ void store_rounded(uint16_t* to, const Vector<Real, V>& values) {
  Vector<uint16_t, V> rounded;
  for (int t = 0; t < V; ++t)
    rounded.x[t] = to_bf16(static_cast<float>(values.x[t]));
  store<V>(to, rounded);
}

// Element-wise work on a run.
struct RoundToBf16 {
  uint16_t* to;
  const float* from;

  template <int V>
  __device__ void at(int64_t, int64_t j) const {
    store_rounded<V>(to + j, load<V>(from + j));
  }
  __device__ RoundToBf16 of(int64_t) const { return *this; }

  bool allows_vectors() const {
    return is_aligned(from, 16) && is_aligned(to, 8);
  }
};

}  // namespace
}  // namespace canzona
