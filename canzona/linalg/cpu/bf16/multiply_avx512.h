// The block product with AVX-512. Only for files compiled for it.
#pragma once

#include "canzona/linalg/cpu/bf16/works_avx512.h"

namespace canzona::linalg {
namespace {

inline void nothing() {}

// sum += left·right for the pairs of one k: `left` is one pair, broadcast.
inline __m512 add_pairs(__m512 sum, __m512i left, __m512i right) {
#if defined(__AVX512BF16__)
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(left),
                          reinterpret_cast<__m512bh>(right));
#else
  sum = _mm512_fmadd_ps(lower_halves(left), lower_halves(right), sum);
  return _mm512_fmadd_ps(upper_halves(left), upper_halves(right), sum);
#endif
}

constexpr int kRowsAtOnce = 8;

// Computes rows [first, first + 8) of the sum.
inline void multiply_rows(const BlockProduct& product, int first) {
  __m512 sums[kRowsAtOnce][2];
  float* acc = product.acc + static_cast<int64_t>(first) * kBlock;
  for (int r = 0; r < kRowsAtOnce; ++r)
    for (int h = 0; h < 2; ++h)
      sums[r][h] = product.resume ? _mm512_load_ps(acc + r * kBlock + h * kTile)
                                  : _mm512_setzero_ps();
  for (int64_t n = 0; n < product.depth; ++n) {
    const int64_t k = product.backward ? product.depth - 1 - n : n;
    const Bf16* left = product.left + k * kBlockElements +
                       static_cast<int64_t>(first) * kBlock;
    const Bf16* right = product.right + k * kBlockElements;
    for (int p = 0; p < kTile; ++p) {
      const __m512i b[2] = {load_line(right + p * kBlock),
                            load_line(right + kTileElements + p * kBlock)};
      for (int r = 0; r < kRowsAtOnce; ++r) {
        int pair;
        __builtin_memcpy(&pair, left + r * kBlock + p * 2, sizeof(pair));
        const __m512i a = _mm512_set1_epi32(pair);
        for (int h = 0; h < 2; ++h) sums[r][h] = add_pairs(sums[r][h], a, b[h]);
      }
    }
  }
  for (int r = 0; r < kRowsAtOnce; ++r)
    for (int h = 0; h < 2; ++h)
      _mm512_store_ps(acc + r * kBlock + h * kTile, sums[r][h]);
}

inline void multiply(const BlockProduct& product, const Epilogue* previous) {
  if (previous != nullptr) finish(*previous);
  for (int first = 0; first < kBlock; first += kRowsAtOnce)
    multiply_rows(product, first);
}

constexpr BlockKernel kAvx512Kernel{nothing, nothing, multiply,      finish,
                                    read,    pack,    sum_of_squares};

}  // namespace
}  // namespace canzona::linalg
