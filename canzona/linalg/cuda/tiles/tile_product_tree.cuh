// Sums of strips wait for each other in the Hopper kernel. A warpgroup's sums
// fill its registers, so those of earlier strips lie in memory, where the L2
// cache holds them: as many places as the tree needs, and each thread has
// numbers of its own in each of them.
#pragma once

#include "canzona/linalg/cuda/tiles/tile_product_pipeline.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_ptx.cuh"

namespace canzona {
namespace {

// Numbers that are under way together: more would not find registers.
constexpr int kTreeQuads = 4;
constexpr int kQuadsOfColumns = kBox / 8;  // of a thread, in a box of columns

// The first of this thread's numbers; the next four are as many quads further
// as there are threads that multiply.
__device__ inline float4* tree_place(const StripTree& tree, int32_t place) {
  constexpr int64_t kThreadsThatAdd = kConsumerGroups * kGroupThreads;
  const int64_t block = int64_t{place} * gridDim.x + blockIdx.x;
  return reinterpret_cast<float4*>(tree.scratch) +
         block * (kSums / 4) * kThreadsThatAdd + threadIdx.x;
}

__device__ inline float4 sum_of(float4 left, float4 right) {
  return {__fadd_rn(left.x, right.x), __fadd_rn(left.y, right.y),
          __fadd_rn(left.z, right.z), __fadd_rn(left.w, right.w)};
}

// Adds what the places from `first` down to `last` hold, the highest first, to
// the sums of the first columns; take(quad, its four numbers) gets the results.
template <class Take>
__device__ void add_places(const float (&sums)[kSums], const StripTree& tree,
                           int32_t first, int32_t last, int32_t columns,
                           const Take& take) {
  constexpr int32_t kStride = kConsumerGroups * kGroupThreads;
#pragma unroll
  for (int q = 0; q < kSums / 4; q += kTreeQuads) {
    if (q / kQuadsOfColumns * kBox >= columns) continue;
    float4 values[kTreeQuads];
#pragma unroll
    for (int i = 0; i < kTreeQuads; ++i)
      values[i] = {sums[4 * (q + i)], sums[4 * (q + i) + 1],
                   sums[4 * (q + i) + 2], sums[4 * (q + i) + 3]};
#pragma unroll 1
    for (int32_t place = first; place >= last; --place) {
      const float4* from = tree_place(tree, place) + q * kStride;
      float4 left[kTreeQuads];
#pragma unroll
      for (int i = 0; i < kTreeQuads; ++i) left[i] = __ldcg(from + i * kStride);
#pragma unroll
      for (int i = 0; i < kTreeQuads; ++i)
        values[i] = sum_of(left[i], values[i]);
    }
#pragma unroll
    for (int i = 0; i < kTreeQuads; ++i) take(q + i, values[i]);
  }
}

// Strip s is the sum; it is not the last one. It meets those that end with it,
// as the bits of its number say, and stays where the tree wants it.
__device__ inline void keep_in_tree(const float (&sums)[kSums],
                                    const StripTree& tree, int32_t s,
                                    int32_t columns) {
  constexpr int32_t kStride = kConsumerGroups * kGroupThreads;
  const int32_t own = __popc(static_cast<uint32_t>(s));
  const int32_t last = __popc(static_cast<uint32_t>(s) + 1) - 1;
  float4* to = tree_place(tree, last);
  add_places(sums, tree, own - 1, last, columns, [&](int quad, float4 value) {
    __stcg(to + quad * kStride, value);
  });
}

// The same of the last one, whose sums become those of all.
__device__ inline void take_from_tree(float (&sums)[kSums],
                                      const StripTree& tree, int32_t columns) {
  const int32_t own = __popc(static_cast<uint32_t>(tree.count) - 1);
  add_places(sums, tree, own - 1, 0, columns, [&](int quad, float4 value) {
    sums[4 * quad] = value.x;
    sums[4 * quad + 1] = value.y;
    sums[4 * quad + 2] = value.z;
    sums[4 * quad + 3] = value.w;
  });
}

}  // namespace
}  // namespace canzona
