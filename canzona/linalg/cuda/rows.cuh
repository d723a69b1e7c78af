// Sums along rows: a warp takes a row, and its lanes take four elements at a
// time, however these are loaded, so that bits depend on the number of columns
// alone.
#pragma once

#include <algorithm>

#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/launch.cuh"

namespace canzona::linalg {
namespace {

constexpr int kWarp = 32;
constexpr int kRowsPerBlock = kSumThreads / kWarp;

unsigned blocks_for_rows(const CudaEngine& engine, int64_t rows) {
  return static_cast<unsigned>(std::min(
      (rows + kRowsPerBlock - 1) / kRowsPerBlock,
      int64_t{4} * kBlocksPerMultiprocessor * engine.num_multiprocessors()));
}

// Calls work(k, i) for the warp's rows i of matrices k.
template <class Work>
__device__ void for_rows(const Extent& e, const Work& work) {
  const int64_t first =
      int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarp;
  for (int64_t row = first; row < e.rows * e.count;
       row += int64_t{gridDim.x} * kRowsPerBlock)
    work(row / e.rows, row % e.rows);
}

// N elements side by side.
template <int N>
struct Lot {};

// Calls take(Lot<N>, j) for this lane's elements from column j on, in order;
// N is V where as many are left, and 1 at the end.
template <int V, class Take>
__device__ void for_row(int64_t cols, const Take& take) {
  const int64_t lane = threadIdx.x % kWarp;
#pragma unroll 4
  for (int64_t j = 4 * lane; j < cols; j += 4 * kWarp)
#pragma unroll
    for (int64_t t = j; t < j + 4; t += V) {
      if (V > 1 && t + V <= cols)
        take(Lot<V>{}, t);
      else
        for (int64_t u = t; u < t + V && u < cols; ++u) take(Lot<1>{}, u);
    }
}

// All lanes must call it; the first gets the sum.
__device__ inline double over_warp(double value) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2)
    value = Add{}(value, __shfl_down_sync(~0U, value, lanes));
  return value;
}

}  // namespace
}  // namespace canzona::linalg
