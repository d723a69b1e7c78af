// Products of 16-bit matrices on tensor cores with fp32 sums, for Newton–Schulz
// on a GPU: batches of equal shapes, anything from 1 x 1 up.
//
//   TileProduct gram{.type = TileType::kFp16, .a = x, .b = x};      // X·Xᵀ
//   symmetric_tile_product(gram, r, {}, stream);
//   TileProduct square{.type = TileType::kFp16, .a = r, .b = r, .alpha = c};
//   symmetric_tile_product(square, p, {.c = r, .beta = b, .diagonal = a},
//                          stream);                         // c·R² + b·R + a·I
//
// A matrix's result depends neither on its batch nor on its position in it:
// every element is one sum over k in a fixed order. A GPU of compute capability
// 9.0 runs the Hopper kernel, others (from 8.0) the portable one; their sums
// are rounded differently.
//
// Calls are asynchronous: their arguments must stay valid until the stream has
// passed them. Any thread may call, for its current device. They may be
// captured in a graph; `scalars` are then read at every replay. UsageError
// names an operand that does not fit.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace canzona {

enum class TileType { kFp16, kBf16 };

// The order in which the operands of an m x k by k x n product are stored.
enum class TileOrder {
  kABt,  // A is m x k, B is n x k: X·Xᵀ, X·Q, products of symmetric matrices
  kAtB,  // A is k x m, B is k x n: Xᵀ·X
  kAB,   // A is m x k, B is k x n: Q·X
};

enum class TileKernel { kAuto, kHopper, kPortable };

// The part of a folded symmetric matrix above the diagonal blocks of 256 x 256
// is never read, so it need not be written: nearly half of a large matrix. (The
// portable kernel still reads and writes whole matrices.)
constexpr int64_t kFold = 256;

// Row-major matrices of 16-bit numbers on the device. `data` must be 128-byte
// aligned, and the strides, in elements, multiples of 8. Columns from `cols` on
// are not read; in a result, those up to the next multiple of 8 may be
// overwritten.
struct Tiles {
  std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;
  int64_t count = 1;
  int64_t matrix_stride = 0;
  bool folded = false;
};

// alpha·op(A)·op(B)
struct TileProduct {
  TileType type = TileType::kFp16;
  TileOrder order = TileOrder::kABt;
  Tiles a;
  Tiles b;
  float alpha = 1;
  TileKernel kernel = TileKernel::kAuto;
};

// + beta·C + diagonal·I; without `c.data` there is no C. C may be D.
struct TileAddend {
  Tiles c;
  float beta = 0;
  float diagonal = 0;
};

// D = alpha·op(A)·op(B) + beta·C + diagonal·I, rounded once to 16 bits. D must
// not share memory with A or B.
void tile_product(const TileProduct& product, const Tiles& d,
                  const TileAddend& addend, cudaStream_t stream);

// The same for symmetric D and C: only the part on and below the diagonal is
// computed, then mirrored, so that D is exactly symmetric. Here A and B may
// both be folded, and D; elsewhere only the symmetric one may be, A in the
// order kAB or B in the order kABt.
void symmetric_tile_product(const TileProduct& product, const Tiles& d,
                            const TileAddend& addend, cudaStream_t stream);

// O = alpha·op(A)·op(B) in fp32. `out`, on the device, has the address of one
// contiguous row-major m x n matrix per matrix of the batch.
void tile_product_fp32(const TileProduct& product, float* const* out,
                       cudaStream_t stream);

// Weights to be updated, each operation rounded separately:
//   p = (p·keep_before - step·O)·keep_after
// All pointers are to device memory. `scalars` are keep_before, step,
// keep_after; `copies`, if given, receive the new weights in bf16, rounded to
// nearest even.
struct TileWeights {
  float* const* weights = nullptr;
  uint16_t* const* copies = nullptr;
  const float* scalars = nullptr;
};
void tile_product_apply(const TileProduct& product, const TileWeights& weights,
                        cudaStream_t stream);

}  // namespace canzona
