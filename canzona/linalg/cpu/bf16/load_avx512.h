// Reading, packing and summing for the AVX-512 and AMX kernels.
#pragma once

#include "canzona/linalg/cpu/bf16/epilogue_avx512.h"

namespace canzona {
namespace {

inline __m512 blend_lanes(const SourcePiece& piece, const float* source,
                          float* momentum, __mmask16 lanes) {
  const __m512 g = _mm512_maskz_loadu_ps(lanes, source);
  __m512 u = g;
  if (momentum != nullptr) {
    __m512 b = _mm512_maskz_loadu_ps(lanes, momentum);
    b = _mm512_add_ps(_mm512_mul_ps(_mm512_set1_ps(piece.keep), b),
                      _mm512_mul_ps(_mm512_set1_ps(piece.add), g));
    _mm512_mask_storeu_ps(momentum, lanes, b);
    u = _mm512_add_ps(_mm512_mul_ps(_mm512_set1_ps(piece.from_grad), g),
                      _mm512_mul_ps(_mm512_set1_ps(piece.from_momentum), b));
  }
  return _mm512_mul_ps(u, _mm512_set1_ps(piece.prescale));
}

// Rows are far apart in memory, so each needs to be asked for by itself.
inline void prefetch_row(const float* row) {
  constexpr int kAhead = 4 * kBlock;
  _mm_prefetch(row + kAhead, _MM_HINT_T0);
  _mm_prefetch(row + kAhead + kTile, _MM_HINT_T0);
}

inline void read_row(float* values, const SourcePiece& piece, int64_t row) {
  const float* source = piece.source + row * piece.source_stride;
  prefetch_row(source);
  float* momentum = piece.momentum;
  if (momentum != nullptr) {
    momentum += row * piece.momentum_stride;
    prefetch_row(momentum);
  }
  for (int at = 0; at < kBlock; at += kTile) {
    float* to = momentum == nullptr ? nullptr : momentum + at;
    _mm512_store_ps(values + at, blend_lanes(piece, source + at, to,
                                             first_lanes(piece.width - at)));
  }
}

inline void read(float* values, const SourcePiece& piece) {
  for (int64_t r = 0; r < piece.height; ++r)
    read_row(values + r * kBlock, piece, r);
  for (int64_t i = piece.height * kBlock; i < kBlockElements; i += kTile)
    _mm512_store_ps(values + i, _mm512_setzero_ps());
}

inline __m512d add_squares(__m512d sum, __m256 values) {
  const __m512d wide = _mm512_cvtps_pd(values);
  return _mm512_add_pd(sum, _mm512_mul_pd(wide, wide));
}

inline double sum_of_squares(const Bf16* rows) {
  __m512d columns[4] = {};
  for (int i = 0; i < kBlockElements; i += kTile) {
    const __m256i half =
        _mm256_load_si256(reinterpret_cast<const __m256i*>(rows + i));
    const __m512 values = lower_halves(_mm512_cvtepu16_epi32(half));
    __m512d* sums = columns + i % kBlock / 8;
    sums[0] = add_squares(sums[0], _mm512_castps512_ps256(values));
    sums[1] = add_squares(sums[1], _mm512_extractf32x8_ps(values, 1));
  }
  alignas(64) double eight[8];
  _mm512_store_pd(eight, _mm512_add_pd(_mm512_add_pd(columns[0], columns[1]),
                                       _mm512_add_pd(columns[2], columns[3])));
  for (int half = 4; half > 0; half /= 2)
    for (int c = 0; c < half; ++c) eight[c] += eight[c + half];
  return eight[0];
}

inline double pack(const PackedBlock& to, float* values, bool transpose) {
  alignas(64) float transposed[kBlockElements];
  Epilogue e;
  e.acc = values;
  e.rows = to.rows;
  e.transposed = to.transposed;
  e.pairs = to.pairs;
  NoTiles tiles;
  if (transpose) {
    transpose_values(tiles, transposed, values);
    e.acc = transposed;
  }
  run_packed(tiles, e);
  return sum_of_squares(to.rows);
}

}  // namespace
}  // namespace canzona
