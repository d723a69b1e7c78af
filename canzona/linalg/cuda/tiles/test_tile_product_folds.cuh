// Folded operands give the same bits as whole ones, although the part above the
// diagonal blocks is NaN.
#pragma once

#include <functional>

#include "canzona/linalg/cuda/tiles/test_tile_product.cuh"

namespace canzona::linalg {
namespace {

// The portable kernel reads and writes whole matrices.
bool folds(TileKernel kernel) {
  int major = 0;
  CANZONA_MUST(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  return kernel == TileKernel::kHopper ||
         (kernel == TileKernel::kAuto && major == 9);
}

// Makes the matrices symmetric from the part on and below the diagonal; or,
// with `poison`, overwrites what folded ones do not have.
__global__ void mirror_tiles(Tiles tiles, bool poison) {
  auto* data = reinterpret_cast<uint16_t*>(tiles.data) +
               blockIdx.y * tiles.matrix_stride;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
       i < tiles.rows * tiles.cols; i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t row = i / tiles.cols;
    const int64_t col = i % tiles.cols;
    uint16_t& value = data[row * tiles.row_stride + col];
    if (poison && row / kFold < col / kFold) value = 0xFFFF;
    if (!poison && col > row) value = data[col * tiles.row_stride + row];
  }
}

// The same symmetric matrices twice.
struct FoldedPair {
  Stack whole;
  Stack folded;

  FoldedPair(int64_t side, int64_t count, TileType type, uint64_t seed)
      : whole(side, side, count), folded(side, side, count) {
    for (const Stack* stack : {&whole, &folded}) {
      const dim3 grid(64, static_cast<unsigned>(count));
      stack->randomize(type, seed);
      mirror_tiles<<<grid, 256>>>(stack->tiles(), false);
      if (stack == &folded) mirror_tiles<<<grid, 256>>>(stack->tiles(), true);
    }
  }
  Tiles tiles(bool is_folded) const {
    Tiles tiles = is_folded ? folded.tiles() : whole.tiles();
    tiles.folded = is_folded;
    return tiles;
  }
};

using ExpectEqual = std::function<void(const char* what, int64_t place,
                                       uint16_t got, uint16_t wanted)>;

class FoldChecker {
 public:
  FoldChecker(int64_t side, int64_t cols, int64_t count, TileType type,
              TileKernel kernel, ExpectEqual expect)
      : side_(side),
        cols_(cols),
        count_(count),
        type_(type),
        kernel_(kernel),
        expect_(std::move(expect)),
        p_(side, count, type, 5),
        q_(side, count, type, 6),
        x_(side, cols, count),
        y_(cols, side, count) {
    x_.randomize(type, 7);
    y_.randomize(type, 8);
  }

  void run() const {
    check_symmetric(q_, {});
    check_symmetric(p_, {});
    TileAddend addend{p_.tiles(true), -1.25F, 3.5F};
    check_symmetric(q_, addend);
    check_wide("Q·X", side_, cols_, TileOrder::kAB);
    check_wide("X·Q", cols_, side_, TileOrder::kABt);
  }

 private:
  void check_symmetric(const FoldedPair& b, TileAddend addend) const {
    const Stack whole(side_, side_, count_);
    const Stack folded(side_, side_, count_);
    for (const bool fold : {false, true}) {
      Tiles d = fold ? folded.tiles() : whole.tiles();
      d.folded = fold;
      if (addend.c.data != nullptr) addend.c = p_.tiles(fold);
      symmetric_tile_product({type_, TileOrder::kABt, p_.tiles(fold),
                              b.tiles(fold), 0.75F, kernel_},
                             d, addend, nullptr);
    }
    compare("folded symmetric", folded, whole, true);
  }

  void check_wide(const char* what, int64_t rows, int64_t cols,
                  TileOrder order) const {
    const Stack whole(rows, cols, count_);
    const Stack folded(rows, cols, count_);
    for (const bool fold : {false, true}) {
      const Tiles q = q_.tiles(fold);
      const bool left = order == TileOrder::kAB;
      tile_product({type_, order, left ? q : y_.tiles(), left ? x_.tiles() : q,
                    0.75F, kernel_},
                   fold ? folded.tiles() : whole.tiles(), {}, nullptr);
    }
    compare(what, folded, whole, false);
  }

  // Compares the stored part of a folded result.
  void compare(const char* what, const Stack& got, const Stack& wanted,
               bool folded) const {
    CANZONA_MUST(cudaDeviceSynchronize());
    const auto a = got.read();
    const auto b = wanted.read();
    const Tiles& t = wanted.tiles();
    for (int64_t m = 0; m < t.count; ++m)
      for (int64_t row = 0; row < t.rows; ++row)
        for (int64_t col = 0; col < t.cols; ++col) {
          if (folded && row / kFold < col / kFold) continue;
          const int64_t at = m * t.matrix_stride + row * t.row_stride + col;
          expect_(what, at, a[static_cast<size_t>(at)],
                  b[static_cast<size_t>(at)]);
        }
  }

  int64_t side_, cols_, count_;
  TileType type_;
  TileKernel kernel_;
  ExpectEqual expect_;
  FoldedPair p_, q_;
  Stack x_, y_;
};

}  // namespace
}  // namespace canzona::linalg
