// The schedule determines the order of the blocks of the result. Blocks are
// numbered matrix by matrix, so that those of one matrix are computed close in
// time and find its operands in the L2 cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace canzona {
namespace {

struct TileBlock {
  int32_t matrix;
  int32_t row;  // in blocks
  int32_t col;
};

struct TileSchedule {
  int32_t block_rows;
  int32_t block_cols;
  int32_t blocks_per_matrix;
  int32_t num_blocks;
  bool triangle;
  int32_t takers = 1;     // that share the blocks
  int32_t rotation = 0;   // of the takers from turn to turn
  int32_t num_below = 0;  // blocks below the diagonal, if they come first

  // Rows of blocks that advance together before the next column of blocks.
  static constexpr int32_t kBand = 8;

  static TileSchedule make(int64_t m, int64_t n, int64_t count, int64_t side_m,
                           int64_t side_n, bool triangle) {
    const int64_t rows = (m + side_m - 1) / side_m;
    const int64_t cols = (n + side_n - 1) / side_n;
    const int64_t blocks = triangle ? rows * (rows + 1) / 2 : rows * cols;
    return {static_cast<int32_t>(rows), static_cast<int32_t>(cols),
            static_cast<int32_t>(blocks), static_cast<int32_t>(blocks * count),
            triangle};
  }

  // Blocks on the diagonal of a symmetric result take less work. They come last
  // if there are few blocks; otherwise every taker visits all positions in a
  // matrix as it goes from turn to turn.
  TileSchedule shared_by(int32_t most) const {
    constexpr int32_t kFewTurns = 4;
    TileSchedule shared = *this;
    shared.takers = std::min(most, num_blocks);
    if (!triangle) return shared;
    if (num_blocks <= kFewTurns * most)
      shared.num_below =
          num_blocks / blocks_per_matrix * (blocks_per_matrix - block_rows);
    else
      while (std::gcd(most + shared.rotation, blocks_per_matrix) > 1)
        ++shared.rotation;
    return shared;
  }

  // Returns the block of a taker at its turn; there is none, now or later, if
  // it is not below num_blocks.
  __device__ int32_t index(int32_t taker, int32_t turn) const {
    return turn * takers + (taker + turn * rotation) % takers;
  }

  __device__ TileBlock block(int32_t index) const {
    if (num_below > 0) return sorted_block(index);
    const int32_t matrix = index / blocks_per_matrix;
    const int32_t rest = index - matrix * blocks_per_matrix;
    return triangle ? triangle_block(matrix, rest) : band_block(matrix, rest);
  }

  // The blocks below the diagonal of all matrices come first.
  __device__ TileBlock sorted_block(int32_t index) const {
    const int32_t below = blocks_per_matrix - block_rows;
    if (index < num_below) {
      const int32_t matrix = index / below;
      TileBlock block = triangle_block(matrix, index - matrix * below);
      ++block.row;
      return block;
    }
    const int32_t rest = index - num_below;
    const int32_t matrix = rest / block_rows;
    const int32_t row = rest - matrix * block_rows;
    return {matrix, row, row};
  }

  // Row by row: (0,0), (1,0), (1,1), (2,0), ...
  __device__ static TileBlock triangle_block(int32_t matrix, int32_t rest) {
    auto row = static_cast<int32_t>(
        (sqrtf(8.0f * static_cast<float>(rest) + 1) - 1) / 2);
    if (row * (row + 1) / 2 > rest) --row;
    if ((row + 1) * (row + 2) / 2 <= rest) ++row;
    return {matrix, row, rest - row * (row + 1) / 2};
  }

  __device__ TileBlock band_block(int32_t matrix, int32_t rest) const {
    const int32_t band = rest / (kBand * block_cols);
    const int32_t height = min(kBand, block_rows - band * kBand);
    const int32_t inside = rest - band * kBand * block_cols;
    return {matrix, band * kBand + inside % height, inside / height};
  }
};

}  // namespace
}  // namespace canzona
