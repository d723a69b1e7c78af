// Numbers between fp32 and fp64: for a second try in fp64 where a decomposition
// failed in fp32, and for scalars that a rule must see (eigenvalues to sort by,
// counters). Both sides lie in memory that this thread can read; nothing
// allocates.
#pragma once

#include "canzona/linalg/arena.h"
#include "canzona/linalg/matrix.h"

namespace canzona {

// to = from, rounded to nearest; the same shape and count.
void convert(Matrices to, ConstMatrices from);

// One matrix in another type: a copy in the arena, or itself if that is the
// type it has.
Matrices converted(Arena& arena, Matrices from, DType dtype);
ConstMatrices converted(Arena& arena, ConstMatrices from, DType dtype);

}  // namespace canzona
