// Kernels around products.
#pragma once

#include "canzona/linalg/cuda/cuda_engine.h"

namespace canzona {

// c = beta·c, beta on the device and of c's type; 0 ignores what c held.
void launch_scale(CudaEngine& engine, Matrices c, const void* beta);
// What lies below the diagonal goes above it, too.
void launch_mirror(CudaEngine& engine, Matrices c);
// to = fromᵀ; the two do not overlap.
void launch_transpose(CudaEngine& engine, Matrices to, ConstMatrices from);
// Zeros above the diagonal.
void launch_clear_above(CudaEngine& engine, Matrices a);

// Parts of a number x: high = x in bf16, low = (x - high) in bf16.
enum class Part { kLow, kHigh };
// to = the parts of `from` beside each other, or, by rows, one below the other.
void launch_split(CudaEngine& engine, Matrices to, ConstMatrices from,
                  bool by_rows, Part first, Part second, Part third);

}  // namespace canzona
