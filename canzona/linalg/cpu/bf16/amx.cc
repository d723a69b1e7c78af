// Products in tile registers: 2 x 2 tiles of sums (0-3), two tiles of the left
// factor (4, 5) and two of the right (6, 7).
//
// The tile intrinsics are assembly that does not declare the memory it reads or
// writes, so the compiler is told at every border between tiles and memory.
#include "canzona/linalg/cpu/bf16/works_avx512.h"

namespace canzona::linalg {
namespace {

inline void memory_barrier() { asm volatile("" ::: "memory"); }

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

constexpr TileConfig full_tiles() {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.bytes_per_row[t] = 64;
    config.rows[t] = kTile;
  }
  return config;
}

// Another library may have left tiles configured differently.
void begin() {
  static constexpr TileConfig config = full_tiles();
  memory_barrier();
  _tile_loadconfig(&config);
  memory_barrier();
}

void end() { _tile_release(); }

constexpr int kLowerHalf = kTile * kBlock;  // of acc, in elements

inline void load_sums(const BlockProduct& product) {
  if (!product.resume) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    return;
  }
  const float* acc = product.acc;
  _tile_loadd(0, acc, kValueRowBytes);
  _tile_loadd(1, acc + kTile, kValueRowBytes);
  _tile_loadd(2, acc + kLowerHalf, kValueRowBytes);
  _tile_loadd(3, acc + kLowerHalf + kTile, kValueRowBytes);
}

inline void store_sums(float* acc) {
  _tile_stored(0, acc, kValueRowBytes);
  _tile_stored(1, acc + kTile, kValueRowBytes);
  _tile_stored(2, acc + kLowerHalf, kValueRowBytes);
  _tile_stored(3, acc + kLowerHalf + kTile, kValueRowBytes);
}

// The steps of a product, one block of the summed index each.
class TileSteps {
 public:
  explicit TileSteps(const BlockProduct& product)
      : stride_(product.backward ? -kBlockElements : kBlockElements),
        remaining_(product.depth),
        prefetch_(product.prefetch),
        prefetch_lines_(product.prefetch_lines) {
    const int64_t first = product.backward ? product.depth - 1 : 0;
    left_ = product.left + first * kBlockElements;
    right_ = product.right + first * kBlockElements;
  }

  int64_t remaining() const { return remaining_; }

  // The left factor streams through; the right one should stay in the L1 cache
  // for the next block.
  template <class Work>
  CANZONA_INLINE void step(Work& work) {
    _tile_stream_loadd(4, left_, kLineBytes);
    work.template at<0>();
    _tile_loadd(6, right_, kLineBytes);
    work.template at<1>();
    _tile_dpbf16ps(0, 4, 6);
    work.template at<2>();
    _tile_loadd(7, right_ + kTileElements, kLineBytes);
    work.template at<3>();
    _tile_dpbf16ps(1, 4, 7);
    work.template at<4>();
    _tile_stream_loadd(5, left_ + kTileElements, kLineBytes);
    work.template at<5>();
    _tile_dpbf16ps(2, 5, 6);
    work.template at<6>();
    _tile_dpbf16ps(3, 5, 7);
    work.template at<7>();
    advance();
  }

 private:
  CANZONA_INLINE void advance() {
    left_ += stride_;
    right_ += stride_;
    --remaining_;
    for (int n = 0; n < prefetch_lines_; ++n, prefetch_ += kBlock)
      _mm_prefetch(prefetch_, _MM_HINT_T1);
  }

  const Bf16* left_;
  const Bf16* right_;
  int64_t stride_;
  int64_t remaining_;
  const Bf16* prefetch_;
  int prefetch_lines_;
};

// The vector units are idle while the tile unit multiplies, so the previous
// block is finished meanwhile.
void multiply(const BlockProduct& product, const Epilogue* previous) {
  memory_barrier();
  load_sums(product);
  TileSteps tiles(product);
  if (previous != nullptr) run_epilogue(tiles, *previous);
  for (NoWork none; tiles.remaining() > 0;) tiles.step(none);
  store_sums(product.acc);
  memory_barrier();
}

}  // namespace

const BlockKernel& amx_kernel() {
  static constexpr BlockKernel kernel{begin, end,  multiply,      finish,
                                      read,  pack, sum_of_squares};
  return kernel;
}

}  // namespace canzona::linalg
