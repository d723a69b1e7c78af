// Wide accesses, grids and checks shared by the kernels of Newton–Schulz.
#pragma once

#include <cstdint>

#include "canzona/linalg/cuda/device.h"

namespace canzona {
namespace {

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

}  // namespace
}  // namespace canzona
