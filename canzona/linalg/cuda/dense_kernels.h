// Kernels around products.
#pragma once

#include <cstdint>
#include <span>

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

// Parts of a number x, each in bf16: x, what that leaves of it, and what both
// leave. `order` lists which are wanted, by their number; to = those parts of
// `from` beside each other, or, by rows, one below the other. At most
// kMostParts.
inline constexpr int kMostParts = 6;
void launch_split(CudaEngine& engine, Matrices to, ConstMatrices from,
                  bool by_rows, std::span<const uint8_t> order);

}  // namespace canzona
