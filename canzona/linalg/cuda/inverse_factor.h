// Inverses of Cholesky factors, for whole batches: products and a kernel for
// small blocks, nothing that a library does one matrix at a time.
//
//   invert_factor(engine, gram, inverse, info);   // gram = L·Lᵀ, inverse = L⁻¹
//   times_transposed_inverse(engine, x, a, inverse);           // x = a·L⁻ᵀ
//
// What a matrix gives depends on its size alone. Asynchronous.
#pragma once

#include "canzona/linalg/cuda/cuda_engine.h"

namespace canzona {

// Of `gram` (square) the lower triangle is read; afterwards its diagonal is
// L's, and the rest of it nothing of use. `inverse`, another batch of the same
// shape, is lower triangular. info[i], in the engine's memory, is 0 where
// matrix i was positive definite; else its inverse is nothing of use.
void invert_factor(CudaEngine& engine, Matrices gram, Matrices inverse,
                   int32_t* info);

// x = a·L⁻ᵀ; x is neither of the two.
void times_transposed_inverse(CudaEngine& engine, Matrices x, ConstMatrices a,
                              ConstMatrices inverse);

// Blocks of at most this side are left to the kernel.
inline constexpr int64_t kFactorBlock = 128;
// The diagonal of L in place of a block of gram's, L⁻¹ in the inverse's block.
void launch_invert_block(CudaEngine& engine, Matrices gram, Matrices inverse,
                         int32_t* info);

}  // namespace canzona
