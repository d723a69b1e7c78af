// Transposes 16 x 16 dwords in registers. Only for files compiled for AVX-512.
#pragma once

#include <immintrin.h>

namespace canzona {
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

}  // namespace
}  // namespace canzona
