// LAPACK's decompositions with their workspaces from an arena. Matrices are
// contiguous and, as LAPACK has it, one column after another; sides are at
// least 1. All give false where LAPACK reports a failure. Real is float or
// double.
#pragma once

#include <cstdint>

#include "canzona/linalg/cpu/products.h"
#include "canzona/linalg/memory.h"

namespace canzona {

// Symmetric n x n: eigenvalues ascending, `a` becomes the vectors.
template <class Real>
bool lapack_eigh(Arena& arena, int n, Real* a, Real* values);

// rows >= cols: `a` becomes the orthogonal factor.
template <class Real>
bool lapack_qr(Arena& arena, int rows, int cols, Real* a);

// The lower triangle of a row-major matrix becomes its lower factor.
template <class Real>
bool lapack_cholesky(int n, Real* a, int stride);

// QR by shifted Cholesky QR, three rounds.

// A (rows >= cols) becomes its orthogonal factor, the one whose R has a
// positive diagonal; false, and A of no use, if columns are zero, nearly
// dependent or not finite. Needs an open scope of the arena.
template <class Real>
bool cholesky_qr_one(Arena& arena, View<Real> a);

}  // namespace canzona
