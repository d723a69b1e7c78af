// Products of 16-bit matrices on tensor cores with fp32 sums, for
// Newton–Schulz on a GPU: batches of equal shapes, anything from 1 x 1 up.
//
//   TileProduct gram{.type = TileType::kFp16, .a = x, .b = x};      // X·Xᵀ
//   symmetric_tile_product(gram, r, {}, stream);
//   TileProduct square{.type = TileType::kFp16, .a = r, .b = r, .alpha = c};
//   symmetric_tile_product(square, p, {.c = r, .beta = b, .diagonal = a},
//                          stream);                         // c·R² + b·R + a·I
//
// A matrix's result depends neither on its batch nor on its place in it: every
// element is one sum over k in one order. On a GPU of compute capability 9.0
// the Hopper kernel computes, elsewhere (from 8.0) the portable one; their sums
// are rounded differently.
//
// Calls are asynchronous: the memory that they name must live until the stream
// has passed them. Any thread may call, for its current device. They may be
// captured in a graph; `scalars` are then read at every replay. They throw
// UsageError, which names the operand, if one does not fit.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "canzona/base/rooms.h"

namespace canzona::linalg {

enum class TileType { kFp16, kBf16 };

// The order in which the operands of an m x k by k x n product are stored.
enum class TileOrder {
  kABt,  // A is m x k, B is n x k: X·Xᵀ, X·Q, products of symmetric matrices
  kAtB,  // A is k x m, B is k x n: Xᵀ·X
  kAB,   // A is m x k, B is k x n: Q·X
};

// kAuto: as CANZONA_KERNELS says (kernel_choice.h).
enum class TileKernel { kAuto, kHopper, kPortable };

// The part of a folded symmetric matrix above the diagonal blocks of 256 x 256
// is never read, so it need not be written, which saves nearly half of a large
// one. (The portable kernel reads and writes whole matrices all the same.)
constexpr int64_t kFold = 256;

// Row-major matrices of 16-bit numbers on the device. `data` is aligned to 128
// bytes, the strides, in elements, are multiples of 8. Columns from `cols` on
// are not read; where a result is stored, those up to the next multiple of 8
// may be overwritten.
struct Tiles {
  std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;
  int64_t count = 1;
  int64_t matrix_stride = 0;
  bool folded = false;
};

// Cuts of the inner dimension, k: strip s begins at at[s], a multiple of 64.
// Each strip gives one sum, and a binary tree adds the sums in fp32, neighbours
// first, before alpha and rounding. There may be 1, 2, 4 or 8 strips.
struct TileStrips {
  static constexpr int kMost = 8;
  int count = 1;
  int64_t at[kMost] = {};
  float* scratch = nullptr;  // tile_strip_floats(count) of them
};
// Returns what products on the current device need; none for one strip.
int64_t tile_strip_floats(int strips);

// alpha·op(A)·op(B)
struct TileProduct {
  TileType type = TileType::kFp16;
  TileOrder order = TileOrder::kABt;
  Tiles a;
  Tiles b;
  float alpha = 1;
  TileKernel kernel = TileKernel::kAuto;
  TileStrips strips{};  // several exclude addends, folded operands and the
                        // order kAB
};

// + beta·C + diagonal·I; without `c.data` there is no C. C may be D.
struct TileAddend {
  Tiles c;
  float beta = 0;
  float diagonal = 0;
};

// D = alpha·op(A)·op(B) + beta·C + diagonal·I, rounded once to 16 bits. D
// shares no memory with A and B.
void tile_product(const TileProduct& product, const Tiles& d,
                  const TileAddend& addend, cudaStream_t stream);

// The same where D and C are symmetric: only what lies on and below the
// diagonal is computed and then mirrored, so that D is exactly symmetric. Here
// D may be folded, and so may A and B together in the order kABt. In all other
// products only the operand that is symmetric may be folded: A in the order
// kAB, or B in the order kABt.
void symmetric_tile_product(const TileProduct& product, const Tiles& d,
                            const TileAddend& addend, cudaStream_t stream);

// O = alpha·op(A)·op(B) in fp32. `out` lies on the device and holds the address
// of one contiguous row-major m x n matrix per matrix of the batch.
void tile_product_fp32(const TileProduct& product, float* const* out,
                       cudaStream_t stream);

// The same where O is symmetric: only what lies on and below the diagonal is
// defined. The order must not be kAB.
void symmetric_tile_product_fp32(const TileProduct& product, float* const* out,
                                 cudaStream_t stream);

// Weights to which an update is applied, with every operation rounded
// separately:
//   p = (p·keep_before - step·O)·keep_after
// All pointers are of the device. `scalars` are keep_before, step, keep_after,
// and 1 if O is rounded to bf16 first, otherwise 0; `copies`, if given, receive
// the new weights in bf16 (base/master_bits.h). With `skips`, one number
// per matrix, so many elements lie between groups of `group_rows` rows, a
// multiple of 16.
struct TileWeights {
  float* const* weights = nullptr;
  uint16_t* const* copies = nullptr;
  const float* scalars = nullptr;
  const int64_t* skips = nullptr;
  int32_t group_rows = 0;
};
void tile_product_apply(const TileProduct& product, const TileWeights& weights,
                        cudaStream_t stream);

}  // namespace canzona::linalg
