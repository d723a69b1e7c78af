// Vector work in pieces that fit between tile instructions. Only for files
// compiled for AVX-512; if bf16 instructions are enabled, too, they do the
// rounding.
//
// A core looks only some twenty instructions past a stalled tile instruction,
// so a long sequence of vector instructions between two of them idles the tile
// unit, while the same instructions spread evenly cost almost nothing. A work
// fills eight gaps, work.at<0>() to work.at<7>(), one after each tile
// instruction of a step; what it computes in one gap stays in registers for the
// next.
#pragma once

#include <immintrin.h>

#include "canzona/linalg/cpu/bf16/kernel.h"

namespace canzona::linalg {
namespace {

#define CANZONA_INLINE inline __attribute__((always_inline))

// Keeps the compiler from moving the computation of a value out of its gap.
CANZONA_INLINE void pin(__m512& value) { asm volatile("" : "+v"(value)); }
CANZONA_INLINE void pin(__m512i& value) { asm volatile("" : "+v"(value)); }

CANZONA_INLINE __m512i load_line(const Bf16* from) {
  return _mm512_load_si512(from);
}
CANZONA_INLINE void store_line(Bf16* to, __m512i line) {
  _mm512_store_si512(to, line);
}

// The 16 lower and upper halves of dwords as fp32.
CANZONA_INLINE __m512 lower_halves(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
CANZONA_INLINE __m512 upper_halves(__m512i pairs) {
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, mask));
}

#if defined(__AVX512BF16__)

// 32 values rounded to bf16, `left` first.
CANZONA_INLINE __m512i round_row(__m512 left, __m512 right) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(right, left));
}

#else

// Rounds like bf16_of_bits.
CANZONA_INLINE __m256i round_half_row(__m512 values) {
  const __m512i bits = _mm512_castps_si512(values);
  const __m512i odd =
      _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i nearest =
      _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x00400000));
  const __m512i sign =
      _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0x80000000U)));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  const __mmask16 is_tiny =
      _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(0x7f800000));
  __m512i result = _mm512_mask_mov_epi32(nearest, is_nan, quiet);
  result = _mm512_mask_mov_epi32(result, is_tiny, sign);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(result, 16));
}

CANZONA_INLINE __m512i round_row(__m512 left, __m512 right) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(round_half_row(left)),
                            round_half_row(right), 1);
}

#endif

// The pairs of two rows, for the left (0) or the right (1) 16 columns.
CANZONA_INLINE __m512i interleave(__m512i even, __m512i odd, int half) {
  alignas(64) static constexpr uint16_t kOrder[2][32] = {
      {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
       8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
      {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
       24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
  return _mm512_permutex2var_epi16(even, _mm512_load_si512(kOrder[half]), odd);
}

struct RowPair {
  __m512 even[2];  // row 2p, left and right half
  __m512 odd[2];   // row 2p + 1
};

// Rounds two rows and stores them as rows and as pairs.
struct PackRows {
  Bf16* rows;
  Bf16* pairs;
  __m512i even, odd;

  PackRows(const Epilogue& e, int p)
      : rows(e.rows + p * 2 * kBlock), pairs(e.pairs + p * kBlock) {}

  template <int kGap>
  CANZONA_INLINE void at(RowPair& v) {
    if constexpr (kGap == 0) {
      even = round_row(v.even[0], v.even[1]);
      store_line(rows, even);
      pin(even);
    } else if constexpr (kGap == 1) {
      odd = round_row(v.odd[0], v.odd[1]);
      store_line(rows + kBlock, odd);
      pin(odd);
    } else {
      __m512i mixed = interleave(even, odd, kGap - 2);
      pin(mixed);
      store_line(pairs + (kGap - 2) * kTileElements, mixed);
    }
  }
};

CANZONA_INLINE __mmask16 first_lanes(int count) {
  if (count <= 0) return 0;
  return count >= 16 ? static_cast<__mmask16>(0xffff)
                     : static_cast<__mmask16>((1U << count) - 1U);
}

// Stores two rows as fp32, or applies them.
struct StoreRows {
  const Epilogue& e;
  int first;

  StoreRows(const Epilogue& epilogue, int p) : e(epilogue), first(2 * p) {}

  template <int kGap>
  CANZONA_INLINE void at(RowPair& v) {
    constexpr int kHalf = kGap % 2;
    const int row = first + kGap / 2;
    if (row >= e.height) return;
    const __mmask16 lanes = first_lanes(e.width - kHalf * kTile);
    float* out = e.out + row * e.stride + kHalf * kTile;
    __m512 o = kGap < 2 ? v.even[kHalf] : v.odd[kHalf];
    if (e.apply) {
      const ApplyCoefficients& c = e.coefficients;
      const __m512 p = _mm512_maskz_loadu_ps(lanes, out);
      const __m512 kept = _mm512_mul_ps(p, _mm512_set1_ps(c.keep_before));
      const __m512 step = _mm512_mul_ps(_mm512_set1_ps(c.step), o);
      o = _mm512_mul_ps(_mm512_sub_ps(kept, step),
                        _mm512_set1_ps(c.keep_after));
    }
    pin(o);
    _mm512_mask_storeu_ps(out, lanes, o);
  }
};

// Computes rows 2p and 2p + 1 of alpha·acc + Σ weight·addend into a sink.
template <int kAddends, class Sink>
class RowPairWork {
 public:
  RowPairWork(const Epilogue& epilogue, const float* acc, int p)
      : e_(epilogue), acc_(acc + p * 2 * kBlock), p_(p), sink_(epilogue, p) {}

  template <int kGap>
  CANZONA_INLINE void at() {
    if constexpr (kGap == 0) {
      scale(v_.even, acc_);
    } else if constexpr (kGap == 1) {
      scale(v_.odd, acc_ + kBlock);
    } else if constexpr (kGap < 4) {
      for (int n = 0; n < kAddends; ++n) add<kGap - 2>(n);
    } else {
      sink_.template at<kGap - 4>(v_);
    }
  }

 private:
  CANZONA_INLINE void scale(__m512 (&row)[2], const float* acc) {
    for (int h = 0; h < 2; ++h) {
      row[h] = _mm512_mul_ps(_mm512_set1_ps(e_.alpha),
                             _mm512_load_ps(acc + h * kTile));
      pin(row[h]);
    }
  }
  template <int kHalf>
  CANZONA_INLINE void add(int n) {
    const __m512 weight = _mm512_set1_ps(e_.weight[n]);
    const __m512i x =
        load_line(e_.addend[n] + kHalf * kTileElements + p_ * kBlock);
    __m512& even = v_.even[kHalf];
    __m512& odd = v_.odd[kHalf];
    even = _mm512_add_ps(even, _mm512_mul_ps(weight, lower_halves(x)));
    odd = _mm512_add_ps(odd, _mm512_mul_ps(weight, upper_halves(x)));
    pin(even);
    pin(odd);
  }

  const Epilogue& e_;
  const float* acc_;
  int p_;
  Sink sink_;
  RowPair v_;
};

// Transposes 16 x 16 dwords: rows of 64 bytes, strides in bytes. Each round
// doubles the size of the squares that are already transposed: 2, 4 (within
// 128-bit lanes), then the lanes themselves.
class TransposeWork {
 public:
  TransposeWork(void* to, int to_stride, const void* from, int from_stride)
      : to_(static_cast<char*>(to)),
        from_(static_cast<const char*>(from)),
        to_stride_(to_stride),
        from_stride_(from_stride) {}

  template <int kGap>
  CANZONA_INLINE void at() {
    if constexpr (kGap < 2) {
      for (int i = 8 * kGap; i < 8 * kGap + 8; i += 2) load_two(i);
    } else if constexpr (kGap < 4) {
      for (int i = 8 * kGap - 16; i < 8 * kGap - 8; i += 4) join_four(i);
    } else if constexpr (kGap < 6) {
      for (int c = 2 * kGap - 8; c < 2 * kGap - 6; ++c) exchange_lanes(c);
    } else {
      for (int i = 8 * kGap - 48; i < 8 * kGap - 40; ++i)
        _mm512_store_si512(to_ + i * to_stride_, lines_[i]);
    }
  }

 private:
  CANZONA_INLINE void load_two(int i) {
    const __m512i a = _mm512_load_si512(from_ + i * from_stride_);
    const __m512i b = _mm512_load_si512(from_ + (i + 1) * from_stride_);
    lines_[i] = _mm512_unpacklo_epi32(a, b);
    lines_[i + 1] = _mm512_unpackhi_epi32(a, b);
    pin(lines_[i]);
    pin(lines_[i + 1]);
  }
  CANZONA_INLINE void join_four(int i) {
    const __m512i a = lines_[i], b = lines_[i + 1];
    const __m512i c = lines_[i + 2], d = lines_[i + 3];
    lines_[i] = _mm512_unpacklo_epi64(a, c);
    lines_[i + 1] = _mm512_unpackhi_epi64(a, c);
    lines_[i + 2] = _mm512_unpacklo_epi64(b, d);
    lines_[i + 3] = _mm512_unpackhi_epi64(b, d);
    for (int n = i; n < i + 4; ++n) pin(lines_[n]);
  }
  // Line 4k + c holds column 4l + c of rows 4k to 4k + 3 in its lane l.
  CANZONA_INLINE void exchange_lanes(int c) {
    const __m512i a = lines_[c], b = lines_[4 + c];
    const __m512i d = lines_[8 + c], e = lines_[12 + c];
    const __m512i even_top = _mm512_shuffle_i32x4(a, b, 0x88);
    const __m512i odd_top = _mm512_shuffle_i32x4(a, b, 0xdd);
    const __m512i even_low = _mm512_shuffle_i32x4(d, e, 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(d, e, 0xdd);
    lines_[c] = _mm512_shuffle_i32x4(even_top, even_low, 0x88);
    lines_[4 + c] = _mm512_shuffle_i32x4(odd_top, odd_low, 0x88);
    lines_[8 + c] = _mm512_shuffle_i32x4(even_top, even_low, 0xdd);
    lines_[12 + c] = _mm512_shuffle_i32x4(odd_top, odd_low, 0xdd);
    for (int n = c; n < 16; n += 4) pin(lines_[n]);
  }

  char* to_;
  const char* from_;
  int to_stride_;
  int from_stride_;
  __m512i lines_[kTile];
};

// Two works interleaved.
template <class Work>
struct TwoWorks {
  Work first, second;

  template <int kGap>
  CANZONA_INLINE void at() {
    first.template at<kGap>();
    second.template at<kGap>();
  }
};

struct NoWork {
  template <int kGap>
  CANZONA_INLINE void at() {}
};

// Runs a work without tile instructions around it.
template <class Work>
CANZONA_INLINE void run_alone(Work& work) {
  work.template at<0>();
  work.template at<1>();
  work.template at<2>();
  work.template at<3>();
  work.template at<4>();
  work.template at<5>();
  work.template at<6>();
  work.template at<7>();
}

// Adds eight rows of sums of strips, a row in each gap.
class AddSumsWork {
 public:
  AddSumsWork(const Epilogue& epilogue, int first_row)
      : e_(epilogue), rows_(epilogue.acc + int64_t{first_row} * kBlock) {}

  template <int kGap>
  CANZONA_INLINE void at() {
    add(rows_ + kGap * kBlock);
    add(rows_ + kGap * kBlock + kTile);
  }

 private:
  CANZONA_INLINE void add(float* values) {
    __m512 sum = _mm512_load_ps(values + e_.from_sum * e_.sum_stride);
    for (int p = e_.from_sum - 1; p >= e_.to_sum; --p)
      sum = _mm512_add_ps(_mm512_load_ps(values + p * e_.sum_stride), sum);
    pin(sum);
    _mm512_store_ps(values + e_.to_sum * e_.sum_stride, sum);
  }

  const Epilogue& e_;
  float* rows_;
};

// Epilogues as sequences of works, for the AVX-512 and AMX
// kernels.

// Works run between the tile instructions of `remaining()` steps or, when these
// are used up, alone. This one has no tile instructions.
struct NoTiles {
  static constexpr int64_t remaining() { return 0; }
  template <class Work>
  void step(Work& work) {
    run_alone(work);
  }
};

template <class Tiles, class Work>
CANZONA_INLINE void run_work(Tiles& tiles, Work work) {
  if (tiles.remaining() > 0)
    tiles.step(work);
  else
    run_alone(work);
}

constexpr int kLineBytes = 64;
constexpr int kValueRowBytes = kBlock * 4;

template <int kAddends, class Sink, class Tiles>
CANZONA_INLINE void run_rows(Tiles& tiles, const Epilogue& e, const float* acc,
                             int works_after) {
  using Work = RowPairWork<kAddends, Sink>;
  if (tiles.remaining() >= kTile + works_after) {
    for (int p = 0; p < kTile; ++p) run_work(tiles, Work(e, acc, p));
    return;
  }
  for (int p = 0; p < kTile; p += 2)
    run_work(tiles, TwoWorks<Work>{Work(e, acc, p), Work(e, acc, p + 1)});
}

template <class Sink, class Tiles>
CANZONA_INLINE void run_rows(Tiles& tiles, const Epilogue& e, const float* acc,
                             int works_after) {
  if (e.num_addends == 0)
    run_rows<0, Sink>(tiles, e, acc, works_after);
  else if (e.num_addends == 1)
    run_rows<1, Sink>(tiles, e, acc, works_after);
  else
    run_rows<2, Sink>(tiles, e, acc, works_after);
}

// Transposes from rows to transposed tiles, and from pairs to rows of the
// transpose.
template <class Tiles>
CANZONA_INLINE void transpose_tiles(Tiles& tiles, Bf16* to, const Bf16* from) {
  for (int tile = 0; tile < 2; ++tile)
    run_work(tiles, TransposeWork(to + tile * kTileElements, kLineBytes,
                                  from + tile * kTileElements, kLineBytes));
}

template <class Tiles>
CANZONA_INLINE void transpose_values(Tiles& tiles, float* to,
                                     const float* from) {
  for (int64_t r = 0; r < kBlock; r += kTile)
    for (int64_t c = 0; c < kBlock; c += kTile)
      run_work(tiles, TransposeWork(to + c * kBlock + r, kValueRowBytes,
                                    from + r * kBlock + c, kValueRowBytes));
}

// Takes the part above the diagonal from `mirror`.
CANZONA_INLINE void take_upper_triangle(Bf16* rows, const Bf16* mirror) {
  for (int r = 0; r < kBlock; ++r) {
    const auto above = static_cast<__mmask32>(~1U << r);
    _mm512_mask_storeu_epi16(rows + r * kBlock, above,
                             load_line(mirror + r * kBlock));
  }
}

template <class Tiles>
CANZONA_INLINE void run_packed(Tiles& tiles, const Epilogue& e) {
  const bool mirrored = e.mirror != nullptr;
  run_rows<PackRows>(tiles, e, e.acc, mirrored ? 4 : 2);
  if (mirrored) transpose_tiles(tiles, e.mirror, e.pairs);
  if (e.target == Target::kDiagonal) take_upper_triangle(e.rows, e.mirror);
  transpose_tiles(tiles, e.transposed, e.rows);
}

template <class Tiles>
CANZONA_INLINE void run_plain(Tiles& tiles, const Epilogue& e) {
  if (e.transpose) transpose_values(tiles, e.spare, e.acc);
  run_rows<StoreRows>(tiles, e, e.transpose ? e.spare : e.acc, 0);
}

template <class Tiles>
CANZONA_INLINE void add_sums(Tiles& tiles, const Epilogue& e) {
  constexpr int kRowsOfWork = 8;
  for (int row = 0; row < kBlock; row += kRowsOfWork)
    run_work(tiles, AddSumsWork(e, row));
}

template <class Tiles>
CANZONA_INLINE void run_epilogue(Tiles& tiles, const Epilogue& e) {
  if (e.from_sum > e.to_sum) add_sums(tiles, e);
  if (e.target == Target::kPlain)
    run_plain(tiles, e);
  else if (e.target != Target::kNothing)
    run_packed(tiles, e);
}

inline void finish(const Epilogue& epilogue) {
  NoTiles tiles;
  run_epilogue(tiles, epilogue);
}

// Reading, packing and summing for the AVX-512 and AMX kernels.

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

// Rows are far apart in memory, so each is prefetched separately.
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

}  // namespace canzona::linalg
