// Sums in fp64 whose order depends on the number of elements alone, the same
// for every instruction set. Real is float or double. Any thread may call.
#pragma once

#include <cstdint>

#include "canzona/linalg/cpu/products.h"

namespace canzona::linalg {

// Σ x²; squares of fp32 neither overflow nor underflow here.
template <class Real>
double sum_of_squares(const Real* x, int64_t count);

template <class Real>
double dot(const Real* x, const Real* y, int64_t count);

// Σ (x·factor)², for fp64 out of the range of squares.
double sum_of_scaled_squares(const double* x, double factor, int64_t count);

// The largest |x|; NaN if there is one, otherwise infinity if there is one.
template <class Real>
Real largest_magnitude(const Real* x, int64_t count);

// Reductions of one matrix. Any thread may call.

// Correct whenever the norm itself is representable; not finite if an element
// is not.
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

}  // namespace canzona::linalg
