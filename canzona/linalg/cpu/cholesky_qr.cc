#include "canzona/linalg/cpu/cholesky_qr.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "canzona/linalg/cpu/lapack.h"
#include "canzona/linalg/cpu/reductions.h"

namespace canzona {
namespace {

// Scaling columns by positive numbers leaves the orthogonal factor alone, so
// every round begins by making them of length 1.
template <class Real>
class CholeskyQr {
 public:
  CholeskyQr(Arena& arena, View<Real> a)
      : a_(a),
        gram_(view_of<Real>(
            arena.matrices(DTypeOf<Real>::value, a.cols, a.cols))),
        lengths_(arena.take_array<double>(a.cols)),
        distances_(arena.take_array<double>(a.cols)) {
    std::fill_n(distances_, a.cols, 1.0);
  }

  // The shift keeps the first factor from breaking down. What it leaves is
  // well conditioned, and two plain rounds make that orthonormal.
  bool run() {
    constexpr bool kLast = true;
    if (!bring_into_range() || !normalise_columns()) return false;
    if (!orthogonalise(shift()) || !follow_columns()) return false;
    if (!orthogonalise(0) || !follow_columns()) return false;
    return orthogonalise(0, kLast) && is_independent();
  }

 private:
  bool bring_into_range();
  void measure_columns();
  bool normalise_columns();
  bool follow_columns();
  bool orthogonalise(Real shift, bool last = false);
  bool is_near_orthonormal() const;
  bool is_independent() const;
  Real shift() const;

  View<Real> a_;
  View<Real> gram_;
  double* lengths_;    // of the columns before they were scaled
  double* distances_;  // of each first column from those before it
};

// Squares of fp64 may be out of range, those of fp32 never are.
template <class Real>
bool CholeskyQr<Real>::bring_into_range() {
  if constexpr (sizeof(Real) == sizeof(double)) {
    constexpr double kLargest = 1e100;
    const double largest = largest_magnitude_of<Real>(a_);
    if (!(largest > 0) || !std::isfinite(largest)) return false;
    if (largest < kLargest && largest > 1 / kLargest) return true;
    const int exponent = std::ilogb(largest);
    for (int64_t i = 0; i < a_.rows; ++i)
      for (int64_t j = 0; j < a_.cols; ++j)
        a_.row(i)[j] = std::ldexp(a_.row(i)[j], -exponent);
  }
  return true;
}

template <class Real>
void CholeskyQr<Real>::measure_columns() {
  std::fill_n(lengths_, a_.cols, 0.0);
  for (int64_t i = 0; i < a_.rows; ++i) {
    const Real* row = a_.row(i);
    for (int64_t j = 0; j < a_.cols; ++j) {
      const double value = row[j];
      lengths_[j] += value * value;
    }
  }
  for (int64_t j = 0; j < a_.cols; ++j) lengths_[j] = std::sqrt(lengths_[j]);
}

template <class Real>
bool CholeskyQr<Real>::normalise_columns() {
  measure_columns();
  for (int64_t j = 0; j < a_.cols; ++j)
    if (!(lengths_[j] > 0) || !std::isfinite(lengths_[j])) return false;
  for (int64_t i = 0; i < a_.rows; ++i) {
    Real* row = a_.row(i);
    for (int64_t j = 0; j < a_.cols; ++j)
      row[j] = static_cast<Real>(row[j] / lengths_[j]);
  }
  return true;
}

// Between rounds: what a column has lost in length it had in common with those
// before it.
template <class Real>
bool CholeskyQr<Real>::follow_columns() {
  if (!normalise_columns()) return false;
  for (int64_t j = 0; j < a_.cols; ++j) distances_[j] *= lengths_[j];
  return true;
}

// A = A·R⁻¹ for the factor R of AᵀA + shift·I. The last round must find little
// to do: it squares what is missing, down to rounding.
template <class Real>
bool CholeskyQr<Real>::orthogonalise(Real shift, bool last) {
  square_lower(gram_, 1, a_, Op::kTranspose, 0);
  if (last && !is_near_orthonormal()) return false;
  for (int64_t i = 0; i < a_.cols; ++i) gram_.row(i)[i] += shift;
  if (!lapack_cholesky(blas_int(a_.cols), gram_.data, blas_int(gram_.stride)))
    return false;
  for (int64_t i = 0; i < a_.cols; ++i) distances_[i] *= gram_.row(i)[i];
  solve_lower_transposed(a_, gram_);
  return true;
}

// By the elements below the diagonal of AᵀA.
template <class Real>
bool CholeskyQr<Real>::is_near_orthonormal() const {
  constexpr double kNear = 0.25;
  double sum = 0;
  for (int64_t i = 0; i < a_.cols; ++i)
    for (int64_t j = 0; j < i; ++j) {
      const double value = gram_.row(i)[j];
      sum += 2 * value * value;
    }
  return sum < kNear * kNear;
}

// A column that lies in the span of the others comes out as the rounding of
// one or two operations, stretched to length 1.
template <class Real>
bool CholeskyQr<Real>::is_independent() const {
  constexpr double kNoise = 8 * std::numeric_limits<Real>::epsilon();
  return std::all_of(distances_, distances_ + a_.cols,
                     [](double distance) { return distance > kNoise; });
}

// For columns of length 1. In fp32 the shift that theory asks for would be as
// large as the matrix; a hundred roundings have proved enough.
template <class Real>
Real CholeskyQr<Real>::shift() const {
  if constexpr (sizeof(Real) == sizeof(float)) return 1e-5F;
  const auto m = static_cast<double>(a_.rows);
  const auto n = static_cast<double>(a_.cols);
  constexpr double kUnit = std::numeric_limits<double>::epsilon() / 2;
  return static_cast<Real>(11 * (m * n + n * (n + 1)) * kUnit * n);
}

}  // namespace

template <class Real>
bool cholesky_qr_one(Arena& arena, View<Real> a) {
  return a.cols == 0 || CholeskyQr<Real>(arena, a).run();
}

template bool cholesky_qr_one(Arena&, View<float>);
template bool cholesky_qr_one(Arena&, View<double>);

}  // namespace canzona
