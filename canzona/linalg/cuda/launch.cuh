// Wide accesses, grids and checks shared by the kernels of Newton–Schulz.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "canzona/linalg/cuda/device.h"
#include "canzona/linalg/cuda/elements.cuh"

namespace canzona::linalg {
namespace {

// Four adjacent elements that move in one access of 8, 16 or 2 x 16 bytes.
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

// One launch over many runs of elements: each is cut into chunks of the same
// size, which are numbered consecutively, and blocks take one after another.
//
//   entries[i].first_chunk = …;         // ascending, by number_chunks
//   const int64_t entry = entry_of(entries, num_entries, chunk);

namespace {

// A chunk has enough work to hide the search for its run.
constexpr int64_t kChunk = 8192;

// Sets first_chunk from count; returns the number of chunks.
template <class Entry>
int64_t number_chunks(std::vector<Entry>& entries) {
  int64_t chunks = 0;
  for (Entry& entry : entries) {
    entry.first_chunk = chunks;
    chunks += (entry.count + kChunk - 1) / kChunk;
  }
  return chunks;
}

// Returns the last entry that begins at or before the chunk.
template <class Entry>
__device__ int64_t entry_of(const Entry* entries, int64_t num_entries,
                            int64_t chunk) {
  int64_t low = 0;
  int64_t high = num_entries;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (entries[middle].first_chunk <= chunk)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// Calls take(value) for this thread's elements of a chunk; `vectors` says that
// the run may be read 16 bytes at a time.
template <int kThreads, class Real, class Take>
__device__ void for_chunk(const Real* run, bool vectors, int64_t begin,
                          int64_t end, const Take& take) {
  constexpr int V = kVector<Real>;
  const int64_t whole = vectors ? begin + (end - begin) / V * V : begin;
#pragma unroll 4
  for (int64_t j = begin + V * threadIdx.x; j < whole; j += V * kThreads) {
    const auto values = load<V>(run + j);
    for (int t = 0; t < V; ++t) take(values.x[t]);
  }
  for (int64_t j = whole + threadIdx.x; j < end; j += kThreads) take(run[j]);
}

// Sums within a block are added in an order that depends only on the number of
// threads.
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

// All kSumThreads threads must call it; the first gets the result.
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

// Reduces whole matrices in two launches: matrices are cut into chunks of
// kSumChunk elements, counted row by row whatever the strides, and a block
// reduces a chunk; then a block per matrix reduces its chunks. So the order of
// additions depends on the shape alone.

namespace {

constexpr int64_t kSumChunk = 16384;

int64_t num_chunks(const Extent& e) {
  return std::max<int64_t>((e.rows * e.cols + kSumChunk - 1) / kSumChunk, 1);
}

// Calls take(value) for this thread's elements of chunk s, in order.
template <int V, class Real, class Take>
__device__ void for_chunk(const Real* matrix, int64_t row_stride,
                          const Extent& e, int64_t s, const Take& take) {
  const int64_t elements = e.rows * e.cols;
  const int64_t end = min((s + 1) * kSumChunk, elements);
  for (int64_t i = s * kSumChunk + 4 * threadIdx.x; i < end;
       i += 4 * kSumThreads)
#pragma unroll
    for (int64_t t = i; t < i + 4; t += V) {
      if (V > 1 && t + V <= end) {  // no gaps: the number is the offset
        const auto values = load<V>(matrix + t);
        for (int u = 0; u < V; ++u) take(values.x[u]);
      } else {
        for (int64_t u = t; u < t + V && u < end; ++u) {
          const int64_t row = row_stride == e.cols ? 0 : u / e.cols;
          take(matrix[u + row * (row_stride - e.cols)]);
        }
      }
    }
}

template <int V, class T, class Real, class Reduction>
__global__ void __launch_bounds__(kSumThreads)
    chunks_kernel(T* partial, Strided<const Real> a, Extent e, int64_t chunks,
                  Reduction reduction) {
  for (int64_t k = blockIdx.y; k < e.count; k += gridDim.y) {
    const auto term = reduction.of(k);
    if (!term.is_needed()) continue;
    for (int64_t s = blockIdx.x; s < chunks; s += gridDim.x) {
      T sum = 0;
      for_chunk<V>(a.of(k), a.row_stride, e, s, [&](Real value) {
        sum = reduction.combine(sum, term(value));
      });
      const T all = over_block(sum, reduction.combine);
      if (threadIdx.x == 0) partial[k * chunks + s] = all;
    }
  }
}

// Calls finish(k, reduced) for every matrix k.
template <class T, class Reduction, class Finish>
__global__ void __launch_bounds__(kSumThreads)
    finish_kernel(const T* partial, int64_t chunks, int64_t count,
                  Reduction reduction, Finish finish) {
  for (int64_t k = blockIdx.x; k < count; k += gridDim.x) {
    if (!reduction.of(k).is_needed()) continue;
    T sum = 0;
    for (int64_t s = threadIdx.x; s < chunks; s += kSumThreads)
      sum = reduction.combine(sum, partial[k * chunks + s]);
    const T all = over_block(sum, reduction.combine);
    if (threadIdx.x == 0) finish(k, all);
  }
}

template <class T, class Real, class Device, class Reduction, class Finish>
void reduce(Device& device, T* partial, ConstMatrices a,
            const Reduction& reduction, const Finish& finish) {
  if (a.count == 0) return;
  constexpr int V = kVector<Real>;
  const Extent e = extent_of(a);
  const int64_t chunks = num_chunks(e);
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(chunks, 4096)),
                  static_cast<unsigned>(std::min<int64_t>(a.count, 65535)));
  const bool vectors = (a.contiguous() || a.rows <= 1) &&
                       is_aligned(a.data, 16) &&
                       (a.count <= 1 || a.matrix_stride % V == 0);
  if (vectors)
    chunks_kernel<V><<<grid, kSumThreads, 0, device.stream()>>>(
        partial, strided<Real>(a), e, chunks, reduction);
  else
    chunks_kernel<1><<<grid, kSumThreads, 0, device.stream()>>>(
        partial, strided<Real>(a), e, chunks, reduction);
  check_cuda(cudaGetLastError(), "reduction of chunks");
  finish_kernel<<<grid.y, kSumThreads, 0, device.stream()>>>(
      partial, chunks, a.count, reduction, finish);
  check_cuda(cudaGetLastError(), "reduction of matrices");
}

}  // namespace

}  // namespace canzona::linalg
