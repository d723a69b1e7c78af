// The blocks of an operand: where its formats begin. Operands are laid out
// here and nowhere else.
#pragma once

#include "canzona/linalg/arena.h"
#include "canzona/linalg/cpu/bf16/layout.h"
#include "canzona/linalg/operand.h"

namespace canzona {

Operand take_wide(Arena& arena, int64_t rows, int64_t cols);
Operand take_symmetric(Arena& arena, int64_t rows);

Blocks wide_blocks(const Operand& x);
Blocks symmetric_blocks(const Operand& r);

// One fp64 per row of blocks of a wide operand, beside its blocks.
double* row_sums(const Operand& x);

}  // namespace canzona
