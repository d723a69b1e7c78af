// Common to all epilogues of the Hopper kernel, which finish a warpgroup's 64 x
// 256 sums in chunks of 64 columns.
#pragma once

#include "canzona/linalg/cuda/tiles/tile_product_numbers.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_pipeline.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_ptx.cuh"

namespace canzona::linalg {
namespace {

constexpr int kPairs = 16;       // per thread and chunk
constexpr int kChunkSums = 32;   // numbers in these pairs
constexpr int kColumnGroup = 8;  // columns of one 8 x 8 matrix

// A warpgroup's part of the result.
struct GroupAt {
  int32_t row;
  int32_t col;
  int32_t matrix;

  __device__ int32_t chunk_col(int chunk) const { return col + chunk * kBox; }
};

// This thread's position in its warpgroup.
struct ThreadAt {
  int32_t warp = static_cast<int32_t>(threadIdx.x % kGroupThreads / 32);
  int32_t lane = static_cast<int32_t>(threadIdx.x % 32);

  __device__ int32_t row(int half) const {
    return 16 * warp + lane / 4 + 8 * half;
  }
  __device__ int32_t col(int group) const {
    return kColumnGroup * group + 2 * (lane % 4);
  }
};

// The address of 16 bytes in a chunk, as swizzled by the copy engine.
__device__ inline uint32_t in_chunk(int32_t row, int32_t group) {
  return static_cast<uint32_t>(row * 128 + ((group ^ (row & 7)) << 4));
}

}  // namespace
}  // namespace canzona::linalg
