// Reduces whole matrices in two launches: matrices are cut into slots of kSlot
// elements, counted row by row whatever the strides, and a block reduces a
// slot; then a block per matrix reduces its slots. So the order of additions
// depends on the shape alone.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "canzona/linalg/cuda/chunks.cuh"
#include "canzona/linalg/cuda/elements.cuh"

namespace canzona {
namespace {

constexpr int64_t kSlot = 16384;

int64_t num_slots(const Extent& e) {
  return std::max<int64_t>((e.rows * e.cols + kSlot - 1) / kSlot, 1);
}

// Calls take(value) for this thread's elements of slot s, in order.
template <int V, class Real, class Take>
__device__ void for_slot(const Real* matrix, int64_t row_stride,
                         const Extent& e, int64_t s, const Take& take) {
  const int64_t elements = e.rows * e.cols;
  const int64_t end = min((s + 1) * kSlot, elements);
  for (int64_t i = s * kSlot + 4 * threadIdx.x; i < end; i += 4 * kSumThreads)
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
    slots_kernel(T* partial, Strided<const Real> a, Extent e, int64_t slots,
                 Reduction reduction) {
  for (int64_t k = blockIdx.y; k < e.count; k += gridDim.y) {
    const auto term = reduction.of(k);
    if (!term.is_needed()) continue;
    for (int64_t s = blockIdx.x; s < slots; s += gridDim.x) {
      T sum = 0;
      for_slot<V>(a.of(k), a.row_stride, e, s, [&](Real value) {
        sum = reduction.combine(sum, term(value));
      });
      const T all = over_block(sum, reduction.combine);
      if (threadIdx.x == 0) partial[k * slots + s] = all;
    }
  }
}

// Calls finish(k, reduced) for every matrix k.
template <class T, class Reduction, class Finish>
__global__ void __launch_bounds__(kSumThreads)
    finish_kernel(const T* partial, int64_t slots, int64_t count,
                  Reduction reduction, Finish finish) {
  for (int64_t k = blockIdx.x; k < count; k += gridDim.x) {
    if (!reduction.of(k).is_needed()) continue;
    T sum = 0;
    for (int64_t s = threadIdx.x; s < slots; s += kSumThreads)
      sum = reduction.combine(sum, partial[k * slots + s]);
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
  const int64_t slots = num_slots(e);
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(slots, 4096)),
                  static_cast<unsigned>(std::min<int64_t>(a.count, 65535)));
  const bool vectors = (a.contiguous() || a.rows <= 1) &&
                       is_aligned(a.data, 16) &&
                       (a.count <= 1 || a.matrix_stride % V == 0);
  if (vectors)
    slots_kernel<V><<<grid, kSumThreads, 0, device.stream()>>>(
        partial, strided<Real>(a), e, slots, reduction);
  else
    slots_kernel<1><<<grid, kSumThreads, 0, device.stream()>>>(
        partial, strided<Real>(a), e, slots, reduction);
  check_cuda(cudaGetLastError(), "reduction of slots");
  finish_kernel<<<grid.y, kSumThreads, 0, device.stream()>>>(
      partial, slots, a.count, reduction, finish);
  check_cuda(cudaGetLastError(), "reduction of matrices");
}

}  // namespace
}  // namespace canzona
