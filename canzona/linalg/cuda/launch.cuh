// What kernels of this folder share: single roundings, wide accesses, grids.
#pragma once

#include <cstdint>

#include "canzona/linalg/cuda/check.h"

namespace canzona {

// Each rounded by itself: fused multiply-adds would give bits that a CPU, or
// the same stage in another kernel, does not.
__device__ inline float add_rn(float a, float b) { return __fadd_rn(a, b); }
__device__ inline double add_rn(double a, double b) { return __dadd_rn(a, b); }
__device__ inline float sub_rn(float a, float b) { return __fsub_rn(a, b); }
__device__ inline double sub_rn(double a, double b) { return __dsub_rn(a, b); }
__device__ inline float mul_rn(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double mul_rn(double a, double b) { return __dmul_rn(a, b); }

// Four neighbours in one access: 8, 16 or 2 x 16 bytes.
template <class T>
struct alignas(sizeof(T) * 4 > 16 ? 16 : sizeof(T) * 4) Wide {
  T at[4];
};

__device__ inline bool is_wide(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

inline unsigned blocks_for(int64_t elements, int64_t per_block) {
  return static_cast<unsigned>((elements + per_block - 1) / per_block);
}

inline void check_launch(const char* what) {
  check_cuda(cudaGetLastError(), what);
}

}  // namespace canzona
