// Arithmetic on results, the same in all kernels: every operation is rounded
// separately, as on the CPU.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "canzona/base/master_bits.h"
#include "canzona/linalg/cuda/tiles/tile_product.h"

namespace canzona::linalg {
namespace {

// Two 16-bit numbers in a register, the first in the low half.
template <bool kBf16>
struct Pair {
  __device__ static uint32_t pack(float first, float second) {
    uint32_t pair;
    if constexpr (kBf16)
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
          : "=r"(pair)
          : "f"(second), "f"(first));
    else
      asm("cvt.rn.f16x2.f32 %0, %1, %2;"
          : "=r"(pair)
          : "f"(second), "f"(first));
    return pair;
  }

  __device__ static float2 unpack(uint32_t pair) {
    if constexpr (kBf16)
      return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000)};
    else
      return {__half2float(__ushort_as_half(pair & 0xFFFF)),
              __half2float(__ushort_as_half(pair >> 16))};
  }
};

// Rounds two masters to weights, the first in the low half.
__device__ inline uint32_t weight_pair(float first, float second) {
  return weight_of_master(__float_as_uint(first)) |
         uint32_t{weight_of_master(__float_as_uint(second))} << 16;
}

// Returns value + beta·c.
__device__ inline float add_scaled(float value, float beta, float c) {
  return __fadd_rn(value, __fmul_rn(beta, c));
}

// Returns how many elements of other things lie before a row of a matrix.
__device__ inline int64_t skipped_before(const TileWeights& to, int32_t matrix,
                                         int32_t row) {
  return to.skips == nullptr ? 0 : row / to.group_rows * to.skips[matrix];
}

// The scalars of TileWeights.
struct WeightScalars {
  float keep_before;
  float step;
  float keep_after;
  bool as_sent;

  __device__ static WeightScalars load(const float* scalars) {
    return {scalars[0], scalars[1], scalars[2], scalars[3] != 0};
  }

  __device__ float apply(float weight, float update) const {
    const float sent = Pair<true>::unpack(Pair<true>::pack(update, 0)).x;
    return __fmul_rn(__fsub_rn(__fmul_rn(weight, keep_before),
                               __fmul_rn(step, as_sent ? sent : update)),
                     keep_after);
  }
};

}  // namespace
}  // namespace canzona::linalg
