// All epilogues of the Hopper kernel finish a warpgroup's 64 x 256 sums in
// chunks of 64 columns.
#pragma once

#include "canzona/linalg/cuda/tiles/tile_product_numbers.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_pipeline.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_wgmma.cuh"

namespace canzona {
namespace {

constexpr int kPairs = 16;       // of a thread in a chunk
constexpr int kChunkSums = 32;   // the same, counted in numbers
constexpr int kColumnGroup = 8;  // columns that one 8 x 8 matrix has

// A warpgroup's part of the result.
struct GroupAt {
  int32_t row;
  int32_t col;
  int32_t matrix;

  __device__ int32_t chunk_col(int chunk) const { return col + chunk * kBox; }
};

// This thread's place in its warpgroup.
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

// The address of 16 bytes in a chunk as the copy engine swizzles it.
__device__ inline uint32_t in_chunk(int32_t row, int32_t group) {
  return static_cast<uint32_t>(row * 128 + ((group ^ (row & 7)) << 4));
}

}  // namespace
}  // namespace canzona
