// Compiled for AVX-512; transpose.cc checks the CPU before calling.
#include <immintrin.h>

#include "canzona/linalg/cpu/transpose.h"

namespace canzona::linalg {
namespace {

// Rows in, columns out. Each round doubles the size of the squares that are
// already transposed: 2, 4 (within 128-bit lanes), then the lanes themselves.
[[maybe_unused]] inline void transpose16(__m512i (&rows)[16]) {
  __m512i pairs[16];
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  __m512i quads[16];
  for (int i = 0; i < 16; i += 4) {
    quads[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    quads[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    quads[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    quads[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  // quads[4k + c] holds column 4l + c of rows 4k..4k+3 in its lane l.
  for (int c = 0; c < 4; ++c) {
    const __m512i even_top = _mm512_shuffle_i32x4(quads[c], quads[4 + c], 0x88);
    const __m512i odd_top = _mm512_shuffle_i32x4(quads[c], quads[4 + c], 0xdd);
    const __m512i even_low =
        _mm512_shuffle_i32x4(quads[8 + c], quads[12 + c], 0x88);
    const __m512i odd_low =
        _mm512_shuffle_i32x4(quads[8 + c], quads[12 + c], 0xdd);
    rows[c] = _mm512_shuffle_i32x4(even_top, even_low, 0x88);
    rows[4 + c] = _mm512_shuffle_i32x4(odd_top, odd_low, 0x88);
    rows[8 + c] = _mm512_shuffle_i32x4(even_top, even_low, 0xdd);
    rows[12 + c] = _mm512_shuffle_i32x4(odd_top, odd_low, 0xdd);
  }
}

constexpr int64_t kTile = 16;
constexpr int64_t kAhead = 2 * kTile;

// Selects the first `count` of 16.
__mmask16 first(int64_t count) {
  return static_cast<__mmask16>((1U << count) - 1U);
}

int64_t tile_side(int64_t left) { return left < kTile ? left : kTile; }

// Rows and columns beyond the given sides are zero.
void load_tile(__m512i (&tile)[16], const float* from, int64_t stride,
               int64_t rows, int64_t cols) {
  if (rows == kTile && cols == kTile) {
    for (int64_t i = 0; i < kTile; ++i)
      tile[i] = _mm512_loadu_si512(from + i * stride);
    return;
  }
  for (int64_t i = 0; i < kTile; ++i)
    tile[i] = i < rows
                  ? _mm512_maskz_loadu_epi32(first(cols), from + i * stride)
                  : _mm512_setzero_si512();
}

void transpose_tile(float* to, int64_t to_stride, const float* from,
                    int64_t from_stride, int64_t rows, int64_t cols) {
  __m512i tile[16];
  load_tile(tile, from, from_stride, rows, cols);
  transpose16(tile);
  if (rows == kTile && cols == kTile) {
    for (int64_t j = 0; j < kTile; ++j)
      _mm512_storeu_si512(to + j * to_stride, tile[j]);
    return;
  }
  for (int64_t j = 0; j < cols; ++j)
    _mm512_mask_storeu_epi32(to + j * to_stride, first(rows), tile[j]);
}

void mirror_diagonal_tile(float* a, int64_t stride, int64_t side) {
  __m512i tile[16];
  load_tile(tile, a, stride, side, side);
  transpose16(tile);
  for (int64_t j = 0; j < side; ++j) {
    const auto right_of_diagonal =
        static_cast<__mmask16>(first(side) & ~first(j + 1));
    _mm512_mask_storeu_epi32(a + j * stride, right_of_diagonal, tile[j]);
  }
}

// Prefetches the lines of a tile that will be written. They are a row apart,
// which hardware prefetchers do not detect.
void expect_tile(float* tile, int64_t stride) {
  for (int64_t i = 0; i < kTile; ++i)
    __builtin_prefetch(tile + i * stride, /*write=*/1);
}

}  // namespace

void mirror_lower_avx512(float* a, int64_t side, int64_t stride) {
  for (int64_t top = 0; top < side; top += kTile) {
    const int64_t height = tile_side(side - top);
    float* rows = a + top * stride;
    for (int64_t left = 0; left < top; left += kTile) {
      if (left + kAhead < top)
        expect_tile(a + (left + kAhead) * stride + top, stride);
      transpose_tile(a + left * stride + top, stride, rows + left, stride,
                     height, kTile);
    }
    mirror_diagonal_tile(rows + top, stride, height);
  }
}

void transpose_avx512(float* to, int64_t to_stride, const float* from,
                      int64_t from_stride, int64_t rows, int64_t cols) {
  for (int64_t top = 0; top < rows; top += kTile)
    for (int64_t left = 0; left < cols; left += kTile)
      transpose_tile(to + left * to_stride + top, to_stride,
                     from + top * from_stride + left, from_stride,
                     tile_side(rows - top), tile_side(cols - left));
}

}  // namespace canzona::linalg
