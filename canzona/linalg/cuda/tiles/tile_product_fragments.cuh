// The main loop of the portable kernel, for compute capability 8.0 and later: a
// block of 256 threads sums 128 x 128 elements, 32 of k at a time, with 64 x 32
// of them in each of its eight warps.
#pragma once

#include <cstdint>

#include "canzona/linalg/cuda/tiles/tile_product.h"

namespace canzona::linalg {
namespace {

constexpr int32_t kSide = 128;
constexpr int32_t kDepth = 32;  // of k per stage
constexpr int32_t kRing = 3;    // stages
constexpr int32_t kBlockThreads = 256;
constexpr int32_t kWarpRows = 64;
constexpr int32_t kWarpCols = 32;
constexpr int32_t kWarpsAcross = kSide / kWarpCols;
constexpr int32_t kVector = 8;  // elements in 16 bytes
// Rows of a stage are padded by 16 bytes, so that eight of them are in
// different banks.
constexpr int32_t kRowAlong = kDepth + kVector;
constexpr int32_t kRowAcross = kSide + kVector;
constexpr int32_t kOperandElements = kSide * kRowAlong;
static_assert(kOperandElements >= kDepth * kRowAcross);
constexpr int32_t kStageElements = 2 * kOperandElements;
constexpr int32_t kSharedBytes = kRing * kStageElements * 2;

__device__ inline uint32_t shared_place(const uint16_t* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies the first `bytes` of 16; the others become zero.
__device__ inline void copy_vector(uint16_t* to, const void* from,
                                   int32_t bytes) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_place(to)),
      "l"(from), "r"(bytes)
      : "memory");
}

__device__ inline void copies_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kPending>
__device__ inline void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

template <bool kTransposed>
__device__ inline void load_fragments(uint32_t (&to)[4], const uint16_t* from) {
  if constexpr (kTransposed)
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, "
        "[%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"(shared_place(from))
        : "memory");
  else
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"(shared_place(from))
        : "memory");
}

#define CANZONA_MMA(type)                                                   \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type       \
               ".f32"                                                       \
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},"             \
               " {%0, %1, %2, %3};"                                         \
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]),     \
                 "r"(b[1]))

// sums[16 x 8] += A[16 x 16]·B[16 x 8].
template <bool kBf16>
__device__ inline void multiply(float (&sums)[4], const uint32_t (&a)[4],
                                const uint32_t* b) {
  if constexpr (kBf16)
    CANZONA_MMA("bf16");
  else
    CANZONA_MMA("f16");
}

#undef CANZONA_MMA

// One operand's 128 rows of m or n from `outer` on, over all of k. Stored along
// k, a stage is [128][32]; across k, [32][128].
template <bool kAcrossK>
struct OperandRows {
  const uint16_t* data;
  int32_t outer;
  int32_t rows;  // as stored
  int32_t cols;
  int64_t row_stride;

  __device__ OperandRows(const Tiles& tiles, int32_t matrix, int32_t first)
      : data(reinterpret_cast<const uint16_t*>(tiles.data) +
             matrix * tiles.matrix_stride),
        outer(first),
        rows(static_cast<int32_t>(tiles.rows)),
        cols(static_cast<int32_t>(tiles.cols)),
        row_stride(tiles.row_stride) {}

  __device__ void copy(uint16_t* stage, int32_t k) const {
    constexpr int32_t kCols = kAcrossK ? kSide : kDepth;
    constexpr int32_t kVectors = kSide * kDepth / kVector;
    const int32_t row0 = kAcrossK ? k : outer;
    const int32_t col0 = kAcrossK ? outer : k;
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < kVectors;
         i += kBlockThreads) {
      const int32_t row = i / (kCols / kVector);
      const int32_t col = i % (kCols / kVector) * kVector;
      const int32_t left = row0 + row < rows ? cols - col0 - col : 0;
      const int32_t bytes = 2 * min(kVector, max(0, left));
      const uint16_t* from = data + (row0 + row) * row_stride + col0 + col;
      copy_vector(stage + row * (kAcrossK ? kRowAcross : kRowAlong) + col,
                  bytes > 0 ? from : data, bytes);
    }
  }
};

// Loads sixteen rows of m from `row` on, as the left operand of one step of k.
template <bool kAcrossK>
__device__ inline void load_left(uint32_t (&to)[4], const uint16_t* stage,
                                 int32_t row, int32_t k) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  if constexpr (kAcrossK)
    load_fragments<true>(to, stage +
                                 (k + lane / 16 * 8 + lane % 8) * kRowAcross +
                                 row + lane / 8 % 2 * 8);
  else
    load_fragments<false>(
        to, stage + (row + lane % 16) * kRowAlong + k + lane / 16 * 8);
}

// Loads sixteen columns of n from `col` on, as two right operands.
template <bool kAcrossK>
__device__ inline void load_right(uint32_t (&to)[4], const uint16_t* stage,
                                  int32_t col, int32_t k) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  if constexpr (kAcrossK)
    load_fragments<true>(
        to, stage + (k + lane / 8 % 2 * 8 + lane % 8) * kRowAcross + col +
                lane / 16 * 8);
  else
    load_fragments<false>(to, stage +
                                  (col + lane / 16 * 8 + lane % 8) * kRowAlong +
                                  k + lane / 8 % 2 * 8);
}

// A warp's 64 x 32 sums: [groups of 16 rows][groups of 8 columns][per thread].
using WarpSums = float[kWarpRows / 16][kWarpCols / 8][4];

template <bool kBf16, bool kAAcrossK, bool kBAcrossK>
__device__ inline void add_stage(WarpSums& sums, const uint16_t* stage,
                                 int32_t row, int32_t col) {
#pragma unroll
  for (int32_t k = 0; k < kDepth; k += 16) {
    uint32_t left[kWarpRows / 16][4];
    uint32_t right[kWarpCols / 16][4];
#pragma unroll
    for (int32_t i = 0; i < kWarpRows / 16; ++i)
      load_left<kAAcrossK>(left[i], stage, row + 16 * i, k);
#pragma unroll
    for (int32_t j = 0; j < kWarpCols / 16; ++j)
      load_right<kBAcrossK>(right[j], stage + kOperandElements, col + 16 * j,
                            k);
#pragma unroll
    for (int32_t i = 0; i < kWarpRows / 16; ++i)
#pragma unroll
      for (int32_t j = 0; j < kWarpCols / 8; ++j)
        multiply<kBf16>(sums[i][j], left[i], &right[j / 2][j % 2 * 2]);
  }
}

}  // namespace
}  // namespace canzona::linalg
