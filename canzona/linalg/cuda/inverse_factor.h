// Inverses of Cholesky factors, for whole batches: products and a kernel for
// small blocks, nothing that a library does one matrix at a time.
//
//   invert_factor(engine, gram, inverse, info);   // gram = L·Lᵀ, inverse = L⁻¹
//
// What a matrix gives depends on its size alone. Asynchronous.
#pragma once

#include "canzona/linalg/cuda/cuda_engine.h"

namespace canzona {

// `gram` (symmetric, square) holds L on its diagonal blocks afterwards, the
// rest of it nothing of use; `inverse`, another batch of the same shape, is
// lower triangular. info[i], in the engine's memory, is 0 where matrix i was
// positive definite; else its inverse is nothing of use.
void invert_factor(CudaEngine& engine, Matrices gram, Matrices inverse,
                   int32_t* info);

// Blocks of at most this side are left to the kernel.
inline constexpr int64_t kFactorBlock = 64;
// L in place of a block of gram, L⁻¹ in that of the inverse.
void launch_invert_block(CudaEngine& engine, Matrices gram, Matrices inverse,
                         int32_t* info);

}  // namespace canzona
