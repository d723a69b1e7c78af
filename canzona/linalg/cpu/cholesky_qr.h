// QR by shifted Cholesky QR, three rounds.
#pragma once

#include "canzona/linalg/arena.h"
#include "canzona/linalg/cpu/products.h"

namespace canzona {

// A (rows >= cols) becomes its orthogonal factor, the one whose R has a
// positive diagonal; false, and A of no use, if columns are zero, nearly
// dependent or not finite. Needs an open scope of the arena.
template <class Real>
bool cholesky_qr_one(Arena& arena, View<Real> a);

}  // namespace canzona
