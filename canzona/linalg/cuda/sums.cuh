// Sums within a block, in an order that only the number of threads decides.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace canzona {
namespace {

constexpr int kSumThreads = 256;

struct Add {
  __device__ double operator()(double a, double b) const {
    return __dadd_rn(a, b);
  }
};
struct Largest {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const {
    return a > b ? a : b;
  }
};

// All of kSumThreads call it; the first gets the result.
template <class T, class Combine>
__device__ T over_block(T value, const Combine& combine) {
  __shared__ T values[kSumThreads];
  __syncthreads();
  values[threadIdx.x] = value;
  __syncthreads();
  for (int half = kSumThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half)
      values[threadIdx.x] =
          combine(values[threadIdx.x], values[threadIdx.x + half]);
    __syncthreads();
  }
  return values[0];
}

}  // namespace
}  // namespace canzona
