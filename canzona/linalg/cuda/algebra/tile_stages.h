// Element-wise work on the operands of Newton–Schulz between products.
//
// All pointers are of the device; calls are asynchronous.
#pragma once

#include "canzona/linalg/cuda/tiles/tile_product.h"
#include "canzona/linalg/dtype.h"

namespace canzona {

// D = beta·C + diagonal·I, rounded once.
void launch_tile_line(TileType type, const Tiles& d, const TileAddend& addend,
                      cudaStream_t stream);

// 16-bit results into fp32 matrices: stored, or, with scalars, taken from
// weights, each p = (p·keep_before - step·x)·keep_after, with bf16 copies.
void launch_tile_store(TileType type, const Tiles& x,
                       const TileWeights& weights, cudaStream_t stream);

int64_t tile_norm_slots(const Tiles& r);  // per matrix
struct TileScaleWork {
  double* slots = nullptr;
  double* scales = nullptr;  // one per matrix
};
// With s = factor·sqrt(|R|_F): X = X/s and R = R/s²; zeros stay. Of any type of
// number.
void scale_by_norm(DType dtype, const Tiles& x, const Tiles& r, double factor,
                   const TileScaleWork& work, cudaStream_t stream);

}  // namespace canzona
