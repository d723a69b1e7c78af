// Reductions of one matrix. Any thread may call.
#pragma once

#include "canzona/linalg/cpu/products.h"

namespace canzona {

// Right wherever the norm itself is a number; not finite if an element is not.
template <class Real>
double frobenius_norm(ConstView<Real> a);

template <class Real>
double largest_magnitude_of(ConstView<Real> a);

// The sum of the diagonal.
template <class Real>
double trace_of(ConstView<Real> a);

// values[j] = Σ_i a[i,j]·b[i,j]
template <class Real>
void dot_columns(Real* values, ConstView<Real> a, ConstView<Real> b);

}  // namespace canzona
