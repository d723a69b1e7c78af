// Newton–Schulz in bf16 with fp32 sums.
//
//   auto algebra = make_bf16_algebra(usable_bf16_kernels().front());
//   Operand x = algebra->wide(arena, 768, 2048);
//   double norm = algebra->load(x, {.source = gradient});
//
// Operands lie in blocks of 32 x 32 (layout.h) from the first product to the
// last; every product writes the formats that the next one reads, so nothing
// is ever repacked. All kernels share formats and orders of loops, and differ
// only in how the sum of one block is formed.
//
// The algebra owns some scratch, operands lie in the caller's arena. One thread
// at a time uses an algebra.
#pragma once

#include <memory>

#include "canzona/linalg/cpu/cpu_algebra.h"
#include "canzona/linalg/engine.h"

namespace canzona {

// UsageError if this machine cannot run the kernel.
std::unique_ptr<CpuAlgebra> make_bf16_algebra(Bf16Kernel kernel);

}  // namespace canzona
