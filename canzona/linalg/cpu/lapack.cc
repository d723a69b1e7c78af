#include "canzona/linalg/cpu/lapack.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "canzona/base/check.h"
#include "canzona/linalg/cpu/blas.h"
#include "canzona/linalg/cpu/reductions.h"
#include "canzona/linalg/of_type.h"

// Everything that LAPACK's Fortran sources need from their runtime for the
// functions below: `out` becomes a followed by b, padded with blanks. This
// makes libgfortran unnecessary; if it is linked nevertheless, its symbol takes
// precedence.
extern "C" [[gnu::weak, gnu::visibility("hidden")]] void
_gfortran_concat_string(size_t out_length, char* out, size_t a_length,
                        const char* a, size_t b_length, const char* b) {
  const size_t from_a = std::min(a_length, out_length);
  const size_t from_b = std::min(b_length, out_length - from_a);
  std::copy_n(a, from_a, out);
  std::copy_n(b, from_b, out + from_a);
  std::fill(out + from_a + from_b, out + out_length, ' ');
}

namespace canzona::linalg {
namespace {

constexpr int kAsk = -1;  // as workspace size: asks for the best

// The answer is a real number, which fp32 may have rounded down.
template <class Real>
int answered(Real size, int64_t at_least) {
  const auto asked = static_cast<int64_t>(std::nextafter(size, Real{2} * size));
  return blas_int(std::max(asked, at_least));
}

}  // namespace

template <class Real>
bool lapack_eigh(Arena& arena, int n, Real* a, Real* values) {
  const int64_t side = n;
  Real asked = 0;
  int iasked = 0;
  int info = 0;
  const auto syevd = [&](Real* work, int lwork, int* iwork, int liwork) {
    of_type<Real>(ssyevd_, dsyevd_)("V", "L", &n, a, &n, values, work, &lwork,
                                    iwork, &liwork, &info, 1, 1);
  };
  syevd(&asked, kAsk, &iasked, kAsk);
  CANZONA_CHECK_EQ(info, 0, "workspace of syevd, n = ", n);
  const int lwork = answered(asked, 1 + 6 * side + 2 * side * side);
  const int liwork = blas_int(std::max<int64_t>(iasked, 3 + 5 * side));
  Real* work = arena.take_array<Real>(lwork);
  int* iwork = arena.take_array<int>(liwork);
  syevd(work, lwork, iwork, liwork);
  return info == 0;
}

template <class Real>
bool lapack_qr(Arena& arena, int rows, int cols, Real* a) {
  Real asked[2] = {};
  int info = 0;
  Real* tau = arena.take_array<Real>(cols);
  const auto geqrf = [&](Real* work, int lwork) {
    of_type<Real>(sgeqrf_, dgeqrf_)(&rows, &cols, a, &rows, tau, work, &lwork,
                                    &info);
  };
  const auto orgqr = [&](Real* work, int lwork) {
    of_type<Real>(sorgqr_, dorgqr_)(&rows, &cols, &cols, a, &rows, tau, work,
                                    &lwork, &info);
  };
  geqrf(&asked[0], kAsk);
  CANZONA_CHECK_EQ(info, 0, "workspace of geqrf, ", rows, "x", cols);
  orgqr(&asked[1], kAsk);
  CANZONA_CHECK_EQ(info, 0, "workspace of orgqr, ", rows, "x", cols);
  const int lwork = answered(std::max(asked[0], asked[1]), cols);
  Real* work = arena.take_array<Real>(lwork);
  geqrf(work, lwork);
  if (info != 0) return false;
  orgqr(work, lwork);
  return info == 0;
}

template <class Real>
bool lapack_cholesky(int n, Real* a, int stride) {
  int info = 0;
  of_type<Real>(spotrf_, dpotrf_)("U", &n, a, &stride, &info, 1);
  return info == 0;
}

template bool lapack_eigh(Arena&, int, float*, float*);
template bool lapack_eigh(Arena&, int, double*, double*);
template bool lapack_qr(Arena&, int, int, float*);
template bool lapack_qr(Arena&, int, int, double*);
template bool lapack_cholesky(int, float*, int);
template bool lapack_cholesky(int, double*, int);

namespace {

// Scaling columns by positive numbers does not change the orthogonal factor, so
// every round begins by normalizing them.
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

  // The shift keeps the first factorization from breaking down. The result is
  // well conditioned, and two plain rounds make it orthonormal.
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
  double* lengths_;    // of the columns before scaling
  double* distances_;  // of each original column from those before it
};

// Squares of fp64 may be out of range; those of fp32 never are.
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

// Between rounds: what a column lost in length, it had in common with those
// before it.
template <class Real>
bool CholeskyQr<Real>::follow_columns() {
  if (!normalise_columns()) return false;
  for (int64_t j = 0; j < a_.cols; ++j) distances_[j] *= lengths_[j];
  return true;
}

// A = A·R⁻¹ for the factor R of AᵀA + shift·I. The last round must find little
// to do: it squares the remaining error, down to rounding.
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

// Checks the elements below the diagonal of AᵀA.
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

// A column in the span of the others comes out as the rounding error of one or
// two operations, scaled to length 1.
template <class Real>
bool CholeskyQr<Real>::is_independent() const {
  constexpr double kNoise = 8 * std::numeric_limits<Real>::epsilon();
  return std::all_of(distances_, distances_ + a_.cols,
                     [](double distance) { return distance > kNoise; });
}

// For columns of length 1. In fp32 the shift required by theory would be as
// large as the matrix; a hundred roundings have proved sufficient.
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

}  // namespace canzona::linalg
