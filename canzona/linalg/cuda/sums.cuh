// Reductions inside a block, in an order that only its size decides.
#pragma once

namespace canzona {

// The larger magnitude; a NaN stays.
__device__ inline double larger(double a, double b) {
  const double x = fabs(a), y = fabs(b);
  if (!(x == x)) return x;
  return x < y || !(y == y) ? y : x;
}

template <int kThreads, class Combine>
__device__ double block_reduce(double value, const Combine& combine) {
  __shared__ double shared[kThreads / 32];
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    value = combine(value, __shfl_down_sync(0xffffffffU, value, step));
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) shared[warp] = value;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 1; i < kThreads / 32; ++i) value = combine(value, shared[i]);
  __syncthreads();
  return value;
}

// Right in thread 0.
template <int kThreads>
__device__ double block_sum(double value) {
  return block_reduce<kThreads>(value,
                                [](double a, double b) { return a + b; });
}

template <int kThreads>
__device__ double block_max(double value) {
  return block_reduce<kThreads>(
      value, [](double a, double b) { return larger(a, b); });
}

}  // namespace canzona
