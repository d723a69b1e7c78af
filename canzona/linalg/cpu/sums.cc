#include "canzona/linalg/cpu/sums.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

namespace canzona {
namespace {

// Sixteen sums side by side keep the adders of any CPU busy.
constexpr int64_t kLanes = 16;

double add_lanes(double (&lanes)[kLanes]) {
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

// Σ term(i) for i < count.
template <class Term>
double add_all(int64_t count, const Term& term) {
  double lanes[kLanes] = {};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  for (int64_t i = whole; i < count; ++i) lanes[i - whole] += term(i);
  return add_lanes(lanes);
}

}  // namespace

template <class Real>
double sum_of_squares(const Real* x, int64_t count) {
  return add_all(count, [x](int64_t i) {
    const double value = x[i];
    return value * value;
  });
}

double sum_of_scaled_squares(const double* x, double factor, int64_t count) {
  return add_all(count, [x, factor](int64_t i) {
    const double value = x[i] * factor;
    return value * value;
  });
}

// Without their signs, numbers compare like the integers with the same bits,
// and NaNs above infinity.
template <class Real>
Real largest_magnitude(const Real* x, int64_t count) {
  using Bits = std::conditional_t<sizeof(Real) == 4, int32_t, int64_t>;
  Bits largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Bits bits =
        std::bit_cast<Bits>(x[i]) & std::numeric_limits<Bits>::max();
    largest = std::max(largest, bits);
  }
  return std::bit_cast<Real>(largest);
}

template double sum_of_squares(const float*, int64_t);
template double sum_of_squares(const double*, int64_t);
template float largest_magnitude(const float*, int64_t);
template double largest_magnitude(const double*, int64_t);

}  // namespace canzona
