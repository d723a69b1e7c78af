// Numbers of the decoder as its kernels read and write them: fp32, or bf16 as
// the upper halves of fp32, eight at a time, computed in fp32. All rows are
// multiples of eight numbers and begin at multiples of 16 bytes.
//
//   const Lot x = load_lot(row + i);      // row of float or uint16_t
//   store_lot(out + i, x);
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "canzona/linalg/cuda/device.h"

namespace canzona::model {
namespace {

constexpr int kLot = 8;
constexpr int kLanes = 32;  // of a warp

struct Lot {
  float at[kLot];
};

__device__ inline float number(float x) { return x; }
__device__ inline float number(uint16_t x) {
  return __uint_as_float(uint32_t{x} << 16);
}

// Rounds to nearest, ties to even; the first number is in the lower half.
__device__ inline uint32_t rounded_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

template <class T>
__device__ Lot load_lot(const T* from) {
  Lot lot;
  if constexpr (sizeof(T) == 4) {
    const auto* wide = reinterpret_cast<const float4*>(from);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float4 half = wide[i];
      lot.at[4 * i] = half.x;
      lot.at[4 * i + 1] = half.y;
      lot.at[4 * i + 2] = half.z;
      lot.at[4 * i + 3] = half.w;
    }
  } else {
    const uint4 all = *reinterpret_cast<const uint4*>(from);
    const uint32_t pairs[] = {all.x, all.y, all.z, all.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      lot.at[2 * i] = __uint_as_float(pairs[i] << 16);
      lot.at[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000U);
    }
  }
  return lot;
}

template <class T>
__device__ void store_lot(T* to, const Lot& lot) {
  if constexpr (sizeof(T) == 4) {
    auto* wide = reinterpret_cast<float4*>(to);
    wide[0] = {lot.at[0], lot.at[1], lot.at[2], lot.at[3]};
    wide[1] = {lot.at[4], lot.at[5], lot.at[6], lot.at[7]};
  } else {
    *reinterpret_cast<uint4*>(to) = {
        rounded_pair(lot.at[0], lot.at[1]), rounded_pair(lot.at[2], lot.at[3]),
        rounded_pair(lot.at[4], lot.at[5]), rounded_pair(lot.at[6], lot.at[7])};
  }
}

// Two sums over the lanes of a team, a power of two within a warp; every lane
// gets them. All lanes of the warp must call.
__device__ inline float2 team_sums(float2 sums, int team) {
  for (int step = team / 2; step > 0; step /= 2) {
    sums.x += __shfl_xor_sync(~0U, sums.x, step);
    sums.y += __shfl_xor_sync(~0U, sums.y, step);
  }
  return sums;
}

// The same over blockDim.x threads, whole warps, in a block of up to eight
// warps with blockDim.y such rows. All threads of the block must call.
__device__ inline float2 row_sums(float2 sums) {
  __shared__ float2 parts[8][8];
  sums = team_sums(sums, kLanes);
  const unsigned warps = blockDim.x / kLanes;
  if (warps == 1) return sums;
  __syncthreads();  // nobody reads the last ones any more
  if (threadIdx.x % kLanes == 0)
    parts[threadIdx.y][threadIdx.x / kLanes] = sums;
  __syncthreads();
  sums = parts[threadIdx.y][0];
  for (unsigned w = 1; w < warps; ++w) {
    sums.x += parts[threadIdx.y][w].x;
    sums.y += parts[threadIdx.y][w].y;
  }
  return sums;
}

// Blocks of 256 threads: as many warps for a row as have work, and several rows
// if they are short.
inline dim3 row_block(int64_t cols) {
  int64_t warps = 1;
  while (warps < 8 && warps * kLanes * kLot < cols) warps *= 2;
  return dim3(static_cast<unsigned>(warps * kLanes),
              static_cast<unsigned>(8 / warps));
}

inline unsigned num_blocks(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

inline void check_launched(std::string_view what) {
  check_cuda(cudaGetLastError(), what);
}

}  // namespace
}  // namespace canzona::model
