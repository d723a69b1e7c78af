// Arithmetic rounded operation by operation, as on a CPU. It is written out,
// because a compiler may fuse * and +.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "canzona/linalg/cuda/elements.cuh"

namespace canzona {
namespace {

__device__ float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ float sub(float a, float b) { return __fsub_rn(a, b); }
__device__ float quotient(float a, float b) { return __fdiv_rn(a, b); }
__device__ float root(float a) { return __fsqrt_rn(a); }

__device__ double mul(double a, double b) { return __dmul_rn(a, b); }
__device__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ double sub(double a, double b) { return __dsub_rn(a, b); }
__device__ double quotient(double a, double b) { return __ddiv_rn(a, b); }
__device__ double root(double a) { return __dsqrt_rn(a); }

// Rounds to nearest, ties to even; a NaN stays a NaN.
__device__ uint16_t to_bf16(float value) {
  const uint32_t bits = __float_as_uint(value);
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40U : rounded);
}

__device__ float from_bf16(uint16_t bits) {
  return __uint_as_float(uint32_t{bits} << 16);
}

__device__ bool is_finite(float value) {
  return (__float_as_uint(value) & 0x7f800000U) != 0x7f800000U;
}
__device__ bool is_finite(double value) {
  return (__double2hiint(value) & 0x7ff00000) != 0x7ff00000;
}

// Returns the magnitude as an integer of the same order, with NaNs above
// infinity.
__device__ uint64_t magnitude_bits(float value) {
  return __float_as_uint(value) & 0x7fffffffU;
}
__device__ uint64_t magnitude_bits(double value) {
  return static_cast<uint64_t>(__double_as_longlong(value)) &
         0x7fffffffffffffffULL;
}

// Rounds numbers to bf16 as they are stored.

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
