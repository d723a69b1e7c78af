// Compiled for AVX-512; products.cc checks the CPU before calling.
#include "canzona/linalg/cpu/lower_avx512.h"

#include <immintrin.h>

namespace canzona::linalg {
namespace {

// A tile of C is kRows × kCols and stays in 24 of the 32 registers. Its factors
// come from panels, kRows × kInner of A and kInner × kCols of B. B's columns
// are packed kWidest at a time, which fit into the second-level cache.
constexpr int64_t kVector = 16;
constexpr int64_t kRows = 12;
constexpr int64_t kCols = 2 * kVector;
constexpr int64_t kInner = 256;
constexpr int64_t kWidest = 1024;
// Rows of A's panel do not share the sets of the first-level cache.
constexpr int64_t kPanelRow = kInner + kVector;
constexpr int64_t kPanelA = kRows * kPanelRow;
static_assert(kPanelA + kInner * kWidest <= kLowerScratch);
constexpr int64_t kAhead = 8;  // rows of B that are prefetched

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Selects the first `count`, of which there may be more than 16 or less than 0.
__mmask16 first(int64_t count) {
  if (count >= kVector) return 0xffff;
  return count <= 0 ? __mmask16{0} : static_cast<__mmask16>((1U << count) - 1U);
}

// The place of a tile and the factors applied to its sums.
struct Tile {
  float* c;
  int64_t stride;
  int64_t rows;      // at most kRows
  int64_t in_first;  // elements from its first column to the diagonal, in row 0
  float alpha;
  float beta;
};

template <int kVectors>
using Sums = __m512[kRows][kVectors];

template <int kVectors>
[[gnu::always_inline]] inline void store(const Tile& tile,
                                         const Sums<kVectors>& sums) {
  const __m512 alpha = _mm512_set1_ps(tile.alpha);
  const __m512 beta = _mm512_set1_ps(tile.beta);
#pragma GCC unroll 12
  for (int64_t r = 0; r < kRows; ++r) {
    if (r >= tile.rows) break;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      float* to = tile.c + r * tile.stride + v * kVector;
      const __mmask16 mask = first(tile.in_first + r - v * kVector);
      __m512 value = _mm512_mul_ps(alpha, sums[r][v]);
      if (tile.beta != 0)
        value = _mm512_fmadd_ps(beta, _mm512_maskz_loadu_ps(mask, to), value);
      _mm512_mask_storeu_ps(to, mask, value);
    }
  }
}

// Computes the first kVectors vectors of every row of a tile.
template <int kVectors>
void multiply(const Tile& tile, const float* a, const float* b, int64_t inner) {
  // Its lines are a row apart, which hardware prefetchers do not detect.
  for (int64_t r = 0; r < tile.rows; ++r)
    for (int v = 0; v < kVectors; ++v)
      __builtin_prefetch(tile.c + r * tile.stride + v * kVector, /*write=*/1);
  Sums<kVectors> sums;
#pragma GCC unroll 12
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm512_setzero_ps();
  for (int64_t k = 0; k < inner; ++k, ++a, b += kCols) {
    __m512 row[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      row[v] = _mm512_load_ps(b + v * kVector);
      __builtin_prefetch(b + kAhead * kCols + v * kVector);
    }
#pragma GCC unroll 12
    for (int64_t r = 0; r < kRows; ++r) {
      const __m512 factor = _mm512_set1_ps(a[r * kPanelRow]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        sums[r][v] = _mm512_fmadd_ps(factor, row[v], sums[r][v]);
    }
  }
  store<kVectors>(tile, sums);
}

// Copies rows of A. Rows beyond `rows` are zero: they are multiplied, though
// nobody stores the result.
void pack_a(float* panel, const float* from, int64_t stride, int64_t rows,
            int64_t inner) {
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t k = 0; k < inner; k += kVector) {
      const __mmask16 mask = i < rows ? first(inner - k) : __mmask16{0};
      _mm512_storeu_ps(panel + i * kPanelRow + k,
                       _mm512_maskz_loadu_ps(mask, from + i * stride + k));
    }
}

// Copies columns of B; those beyond `cols` are zero.
void pack_b(float* panel, const float* from, int64_t stride, int64_t cols,
            int64_t inner) {
  const __mmask16 low = first(cols);
  const __mmask16 high = first(cols - kVector);
  for (int64_t k = 0; k < inner; ++k, panel += kCols, from += stride) {
    __builtin_prefetch(from + kAhead * stride);
    __builtin_prefetch(from + kAhead * stride + kVector);
    _mm512_store_ps(panel, _mm512_maskz_loadu_ps(low, from));
    _mm512_store_ps(panel + kVector,
                    _mm512_maskz_loadu_ps(high, from + kVector));
  }
}

// Computes a row of tiles, up to the diagonal and to the last of `cols`
// columns.
void multiply_row(Tile tile, const float* a, const float* b, int64_t inner,
                  int64_t cols) {
  const int64_t end = least(cols, tile.in_first + tile.rows - 1);
  for (int64_t j = 0; j < end; j += kCols) {
    (end - j <= kVector ? multiply<1> : multiply<2>)(tile, a, b + j * inner,
                                                     inner);
    tile.c += kCols;
    tile.in_first -= kCols;
  }
}

}  // namespace

void product_lower_avx512(float* c, int64_t c_stride, int64_t side, float alpha,
                          SquareRows a, SquareRows b, float beta,
                          float* scratch) {
  float* const left = scratch;
  float* const right = scratch + kPanelA;
  for (int64_t begin = 0; begin < side; begin += kWidest) {
    const int64_t width = least(kWidest, side - begin);
    for (int64_t k = 0; k < side; k += kInner) {
      const int64_t inner = least(kInner, side - k);
      for (int64_t j = 0; j < width; j += kCols)
        pack_b(right + j * inner, b.data + k * b.stride + begin + j, b.stride,
               width - j, inner);
      for (int64_t i = begin; i < side; i += kRows) {
        const Tile tile{c + i * c_stride + begin,
                        c_stride,
                        least(kRows, side - i),
                        i - begin + 1,
                        alpha,
                        k == 0 ? beta : 1.0F};
        pack_a(left, a.data + i * a.stride + k, a.stride, tile.rows, inner);
        multiply_row(tile, left, right, inner, width);
      }
    }
  }
}

}  // namespace canzona::linalg
