// bf16 operands lie in memory as blocks of 32 x 32, each 2 KB, zeros where a
// block reaches beyond the matrix. An operand is kept in the formats that
// products read:
//
//   rows        32 rows of 32: the left factor. Two tiles of 16 rows.
//   transposed  the same two tiles with their 16 x 16 dwords transposed: the
//               right factor of a product with the transpose.
//   pairs       two tiles of 16 columns; their row p holds rows 2p and 2p+1
//               interleaved: the right factor of a plain product.
//
// The dwords of the last two are pairs along the summed index. If S is
// symmetric, the pairs of block (i, j) are the transposed tiles of (j, i), so
// symmetric operands do without pairs. Blocks along a summed index are
// neighbours: rows and transposed are row-major over blocks, pairs are
// column-major.
#pragma once

#include <cstdint>

#include "canzona/linalg/engine.h"

namespace canzona::linalg {

using Bf16 = uint16_t;  // the upper half of an fp32

inline constexpr int kBlock = 32;
inline constexpr int kTile = 16;
inline constexpr int64_t kBlockElements = kBlock * kBlock;
inline constexpr int64_t kTileElements = kTile * kBlock;

constexpr int64_t num_blocks(int64_t elements) {
  return (elements + kBlock - 1) / kBlock;
}

// The formats of one operand.
struct Blocks {
  Bf16* rows = nullptr;
  Bf16* transposed = nullptr;
  Bf16* pairs = nullptr;  // null in symmetric operands
  int64_t block_rows = 0;
  int64_t block_cols = 0;

  int64_t count() const { return block_rows * block_cols; }
  Bf16* rows_at(int64_t i, int64_t j) const {
    return rows + (i * block_cols + j) * kBlockElements;
  }
  Bf16* transposed_at(int64_t i, int64_t j) const {
    return transposed + (i * block_cols + j) * kBlockElements;
  }
  // Returns the pairs of block (i, j), in a wide or in a symmetric operand.
  Bf16* pairs_at(int64_t i, int64_t j) const {
    return pairs != nullptr ? pairs + (j * block_rows + i) * kBlockElements
                            : transposed_at(j, i);
  }
};

// A bf16 kernel computes one block at a time. The loops over blocks are in
// product.h and algebra.cc, common to all kernels.

// acc (32 x 32, row-major) = Σ_k left(k)·right(k) over `depth` neighbouring
// blocks: rows on the left; transposed tiles or pairs on the right.
struct BlockProduct {
  const Bf16* left = nullptr;
  const Bf16* right = nullptr;
  int64_t depth = 0;
  bool backward = false;  // from the last k to the first
  bool resume = false;    // add to the contents of acc
  float* acc = nullptr;
  // Data to prefetch meanwhile: this many lines of 64 bytes for each k.
  const Bf16* prefetch = nullptr;
  int prefetch_lines = 0;
};

// p = (p·keep_before - step·o)·keep_after, in fp32
struct ApplyCoefficients {
  float keep_before = 1;
  float step = 0;
  float keep_after = 1;
};

enum class Target {
  kNothing,   // the sum of one strip, which others will join
  kPacked,    // bf16 blocks
  kDiagonal,  // the same, with the upper triangle mirrored from the lower
  kPlain,     // fp32 in rows
};

// The epilogue of a sum computes v = alpha·acc + Σ weight·addend, each
// operation rounded to fp32, with addends given as pairs. `acc` and `spare` (of
// the same size) may be overwritten.
struct Epilogue {
  Target target = Target::kPacked;
  float* acc = nullptr;
  float* spare = nullptr;
  // First the sums from_sum to to_sum (base/sum_order.h) are added, the
  // higher one to the lower one. Sum 0 is acc, and each is `sum_stride`
  // elements after the one before it.
  int from_sum = 0;
  int to_sum = 0;
  int64_t sum_stride = 0;
  float alpha = 1;
  int num_addends = 0;
  float weight[2] = {};
  const Bf16* addend[2] = {};

  // Packed targets. The mirror is the rows of the block's transpose, or null; a
  // diagonal block needs memory for it, too.
  Bf16* rows = nullptr;
  Bf16* transposed = nullptr;
  Bf16* pairs = nullptr;
  Bf16* mirror = nullptr;

  // Plain targets: acc is first transposed if requested, then the addends are
  // added; `height` x `width` values of the result are stored.
  float* out = nullptr;
  int64_t stride = 0;
  int height = kBlock;
  int width = kBlock;
  bool transpose = false;
  bool apply = false;
  ApplyCoefficients coefficients;
};

// A piece of `height` x `width` of a source. With momentum:
//   b = keep·b + add·g;  u = from_grad·g + from_momentum·b
// else u = g; then u·prescale.
struct SourcePiece {
  const float* source = nullptr;
  int64_t source_stride = 0;
  float* momentum = nullptr;
  int64_t momentum_stride = 0;
  int height = kBlock;
  int width = kBlock;
  float keep = 0;
  float add = 0;
  float from_grad = 0;
  float from_momentum = 0;
  float prescale = 1;
};

struct PackedBlock {
  Bf16* rows = nullptr;
  Bf16* transposed = nullptr;
  Bf16* pairs = nullptr;
};

// Sums of squares are in fp64, in a fixed order: down each of the 32 columns,
// then columns c, c+8, c+16, c+24 as (0 + 1) + (2 + 3), then by halves.
struct BlockKernel {
  // Called before and after every product of matrices.
  void (*begin)();
  void (*end)();
  // Computes the product and the previous block's epilogue, which may be null:
  // first, or interleaved with its instructions.
  void (*multiply)(const BlockProduct& product, const Epilogue* previous);
  void (*finish)(const Epilogue& epilogue);

  // Reads a piece into 32 x 32 values, zeros beyond the piece.
  void (*read)(float* values, const SourcePiece& piece);
  // Rounds the values, or their transpose, and writes all formats; returns the
  // sum of squares of the rounded values.
  double (*pack)(const PackedBlock& to, float* values, bool transpose);
  double (*sum_of_squares)(const Bf16* rows);
};

// Rounds to nearest even. Values below the smallest normal number become zero
// and NaNs become quiet, as with bf16 instructions.
constexpr Bf16 bf16_of_bits(uint32_t bits) {
  const uint32_t exponent = bits & 0x7f800000U;
  const auto upper = static_cast<Bf16>(bits >> 16);
  if (exponent == 0) return upper & 0x8000U;
  if (exponent == 0x7f800000U && (bits & 0x007fffffU) != 0)
    return upper | 0x0040U;
  return static_cast<Bf16>((bits + 0x7fffU + (upper & 1U)) >> 16);
}

const BlockKernel& portable_kernel();
#if defined(__x86_64__)
const BlockKernel& avx512_kernel();
const BlockKernel& avx512_bf16_kernel();
const BlockKernel& amx_kernel();
#endif

// Returns the kernel's functions; this machine must support it.
const BlockKernel& block_kernel(Bf16Kernel kernel);

}  // namespace canzona::linalg
