#include "canzona/linalg/cpu/reductions.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

namespace canzona::linalg {
namespace {

// Sixteen independent sums keep the adders of any CPU busy.
constexpr int64_t kSums = 16;

double add_partial_sums(double (&sums)[kSums]) {
  for (int64_t half = kSums / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

// Σ term(i) for i < count.
template <class Term>
double add_all(int64_t count, const Term& term) {
  double sums[kSums] = {};
  const int64_t whole = count / kSums * kSums;
  for (int64_t i = 0; i < whole; i += kSums)
    for (int64_t s = 0; s < kSums; ++s) sums[s] += term(i + s);
  for (int64_t i = whole; i < count; ++i) sums[i - whole] += term(i);
  return add_partial_sums(sums);
}

}  // namespace

template <class Real>
double sum_of_squares(const Real* x, int64_t count) {
  return add_all(count, [x](int64_t i) {
    const double value = x[i];
    return value * value;
  });
}

template <class Real>
double dot(const Real* x, const Real* y, int64_t count) {
  return add_all(count, [x, y](int64_t i) {
    return static_cast<double>(x[i]) * static_cast<double>(y[i]);
  });
}

double sum_of_scaled_squares(const double* x, double factor, int64_t count) {
  return add_all(count, [x, factor](int64_t i) {
    const double value = x[i] * factor;
    return value * value;
  });
}

// Without signs, numbers compare like the integers with the same bits, with
// NaNs above infinity.
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
template double dot(const float*, const float*, int64_t);
template double dot(const double*, const double*, int64_t);
template float largest_magnitude(const float*, int64_t);
template double largest_magnitude(const double*, int64_t);

namespace {

template <class Real>
double add_rows_of_squares(ConstView<Real> a) {
  double sum = 0;
  for (int64_t i = 0; i < a.rows; ++i) sum += sum_of_squares(a.row(i), a.cols);
  return sum;
}

// The power of two that brings `largest` near 1, as two factors since one alone
// may be out of range.
struct PowerOfTwo {
  explicit PowerOfTwo(double largest)
      : exponent(std::clamp(-std::ilogb(largest), -1000, 1000)) {}
  double up() const { return std::ldexp(1.0, exponent); }
  double down() const { return std::ldexp(1.0, -exponent); }
  int exponent;
};

double scaled_norm(ConstView<double> a) {
  const double largest = largest_magnitude_of(a);
  if (largest == 0 || !std::isfinite(largest)) return largest;
  const PowerOfTwo scale(largest);
  double sum = 0;
  for (int64_t i = 0; i < a.rows; ++i)
    sum += sum_of_scaled_squares(a.row(i), scale.up(), a.cols);
  return std::sqrt(sum) * scale.down();
}

}  // namespace

template <class Real>
double frobenius_norm(ConstView<Real> a) {
  const double sum = add_rows_of_squares(a);
  if constexpr (sizeof(Real) == sizeof(double)) {
    // Squares that vanished next to this sum were too small to matter.
    constexpr double kSmallest = 1e-280;
    constexpr double kLargest = 1e300;
    if (!(sum > kSmallest && sum < kLargest)) return scaled_norm(a);
  }
  return std::sqrt(sum);
}

template <class Real>
double largest_magnitude_of(ConstView<Real> a) {
  double largest = 0;
  for (int64_t i = 0; i < a.rows; ++i) {
    const double of_row = largest_magnitude(a.row(i), a.cols);
    if (std::isnan(of_row)) return of_row;
    largest = std::max(largest, of_row);
  }
  return largest;
}

template <class Real>
double trace_of(ConstView<Real> a) {
  const int64_t side = std::min(a.rows, a.cols);
  double sum = 0;
  for (int64_t i = 0; i < side; ++i) sum += a.row(i)[i];
  if (std::isfinite(sum) || sizeof(Real) < sizeof(double)) return sum;
  // Either an intermediate overflow, or elements that are not finite and stay
  // so.
  constexpr double kDown = 0x1p-64;
  double scaled = 0;
  for (int64_t i = 0; i < side; ++i) scaled += a.row(i)[i] * kDown;
  return scaled / kDown;
}

template <class Real>
void dot_columns(Real* values, ConstView<Real> a, ConstView<Real> b) {
  constexpr int64_t kBlock = 64;
  for (int64_t begin = 0; begin < a.cols; begin += kBlock) {
    const int64_t count = std::min(kBlock, a.cols - begin);
    double sums[kBlock] = {};
    for (int64_t i = 0; i < a.rows; ++i) {
      const Real* x = a.row(i) + begin;
      const Real* y = b.row(i) + begin;
      for (int64_t j = 0; j < count; ++j)
        sums[j] += static_cast<double>(x[j]) * static_cast<double>(y[j]);
    }
    for (int64_t j = 0; j < count; ++j)
      values[begin + j] = static_cast<Real>(sums[j]);
  }
}

template double frobenius_norm(ConstView<float>);
template double frobenius_norm(ConstView<double>);
template double largest_magnitude_of(ConstView<float>);
template double largest_magnitude_of(ConstView<double>);
template double trace_of(ConstView<float>);
template double trace_of(ConstView<double>);
template void dot_columns(float*, ConstView<float>, ConstView<float>);
template void dot_columns(double*, ConstView<double>, ConstView<double>);

}  // namespace canzona::linalg
