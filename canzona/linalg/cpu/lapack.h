// LAPACK's decompositions with workspaces from an arena. Matrices are
// contiguous and column-major, as LAPACK requires; sides are at least 1. All
// return false if LAPACK reports a failure. Real is float or double.
#pragma once

#include "canzona/linalg/cpu/products.h"
#include "canzona/linalg/memory.h"

namespace canzona::linalg {

// For a symmetric n x n matrix: eigenvalues ascending; `a` is replaced by the
// vectors.
template <class Real>
bool lapack_eigh(Arena& arena, int n, Real* a, Real* values);

// For rows >= cols: replaces `a` by the orthogonal factor.
template <class Real>
bool lapack_qr(Arena& arena, int rows, int cols, Real* a);

// Replaces the lower triangle of a row-major matrix by its lower factor.
template <class Real>
bool lapack_cholesky(int n, Real* a, int stride);

// QR by shifted Cholesky QR, three rounds.

// Replaces A (rows >= cols) by its orthogonal factor, the one whose R has a
// positive diagonal. Returns false, with A undefined, if columns are zero,
// nearly dependent or not finite. Requires an open scope of the arena.
template <class Real>
bool cholesky_qr_one(Arena& arena, View<Real> a);

}  // namespace canzona::linalg
