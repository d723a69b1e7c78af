// Sums in fp64 whose order depends on the number of elements alone, the same
// for every instruction set. Real is float or double. Any thread may call.
#pragma once

#include <cstdint>

namespace canzona {

// Σ x²; squares of fp32 neither overflow nor underflow here.
template <class Real>
double sum_of_squares(const Real* x, int64_t count);

// Σ (x·factor)², for fp64 out of the range of squares.
double sum_of_scaled_squares(const double* x, double factor, int64_t count);

// The largest |x|; a NaN if there is one, else an infinity if there is one.
template <class Real>
Real largest_magnitude(const Real* x, int64_t count);

}  // namespace canzona
