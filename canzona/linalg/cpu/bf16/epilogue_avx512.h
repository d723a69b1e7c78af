// Epilogues as sequences of works (works_avx512.h), for the AVX-512 and AMX
// kernels.
#pragma once

#include "canzona/linalg/cpu/bf16/works_avx512.h"

namespace canzona {
namespace {

// Where works run: between the tile instructions of `remaining()` steps, or,
// when these are used up, by themselves. This one has no tile instructions.
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

// From rows to transposed tiles and from pairs to rows of the transpose.
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

// Above the diagonal takes what `mirror` has there.
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
CANZONA_INLINE void run_epilogue(Tiles& tiles, const Epilogue& e) {
  if (e.target == Target::kPlain)
    run_plain(tiles, e);
  else
    run_packed(tiles, e);
}

inline void finish(const Epilogue& epilogue) {
  NoTiles tiles;
  run_epilogue(tiles, epilogue);
}

}  // namespace
}  // namespace canzona
