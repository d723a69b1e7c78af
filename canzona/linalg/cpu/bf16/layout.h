// How bf16 operands lie in memory: blocks of 32 x 32, each 2 KB, zeros where a
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

namespace canzona {

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
  // The pairs of block (i, j), in a wide or in a symmetric operand.
  Bf16* pairs_at(int64_t i, int64_t j) const {
    return pairs != nullptr ? pairs + (j * block_rows + i) * kBlockElements
                            : transposed_at(j, i);
  }
};

}  // namespace canzona
