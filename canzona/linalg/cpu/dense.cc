// Products and solves of the CPU engine.
#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/linalg/cpu/cpu_engine.h"
#include "canzona/linalg/cpu/lapack.h"
#include "canzona/linalg/cpu/products.h"
#include "canzona/linalg/cpu/transpose.h"

namespace canzona {

void CpuEngine::product(Matrices c, double alpha, ConstMatrices a, Op op_a,
                        ConstMatrices b, Op op_b, double beta) {
  for_each_matrix(
      [&]<class Real>(View<Real> to, ConstView<Real> left,
                      ConstView<Real> right, int64_t) {
        canzona::product(to, static_cast<Real>(alpha), left, op_a, right, op_b,
                         static_cast<Real>(beta));
      },
      c, a, b);
}

void CpuEngine::symmetric_product(Matrices c, double alpha, ConstMatrices a,
                                  Op op_a, double beta) {
  for_each_matrix(
      [&]<class Real>(View<Real> to, ConstView<Real> from, int64_t) {
        square_lower(to, static_cast<Real>(alpha), from, op_a,
                     static_cast<Real>(beta));
        mirror_lower(to);
      },
      c, a);
}

void CpuEngine::commuting_product(Matrices c, ConstMatrices a,
                                  ConstMatrices b) {
  for_each_matrix(
      []<class Real>(View<Real> to, ConstView<Real> left, ConstView<Real> right,
                     int64_t) {
        product_lower(to, left, right);
        mirror_lower(to);
      },
      c, a, b);
}

void CpuEngine::solve_right_transposed(Matrices b, ConstMatrices l) {
  for_each_matrix(
      []<class Real>(View<Real> right, ConstView<Real> factor, int64_t) {
        solve_lower_transposed(right, factor);
      },
      b, l);
}

namespace {

// Decompositions of the CPU engine. LAPACK is column-major and we are
// row-major: a symmetric matrix is the same for both, a lower factor is its
// upper one, and QR gets a transposed copy. LAPACK works in the arena, so that
// results cannot depend on the matrix's alignment.

template <class Real>
View<Real> scratch(Arena& arena, int64_t rows, int64_t cols) {
  return view_of<Real>(arena.matrices(DTypeOf<Real>::value, rows, cols));
}

template <class Real>
View<Real> scratch_copy(Arena& arena, View<Real> a) {
  const View<Real> copy = scratch<Real>(arena, a.rows, a.cols);
  for (int64_t i = 0; i < a.rows; ++i)
    std::copy_n(a.row(i), a.cols, copy.row(i));
  return copy;
}

template <class Real>
bool eigh_one(Arena& arena, View<Real> a, View<Real> values) {
  if (a.rows == 0) return true;
  const View<Real> vectors = scratch_copy(arena, a);
  if (!lapack_eigh(arena, blas_int(a.rows), vectors.data, values.data))
    return false;
  transpose<Real>(a, vectors);
  return true;
}

template <class Real>
bool qr_one(Arena& arena, View<Real> a) {
  if (a.cols == 0) return true;
  const View<Real> columns = scratch<Real>(arena, a.cols, a.rows);
  transpose<Real>(columns, a);
  if (!lapack_qr(arena, blas_int(a.rows), blas_int(a.cols), columns.data))
    return false;
  transpose<Real>(a, columns);
  return true;
}

template <class Real>
bool cholesky_one(Arena& arena, View<Real> a) {
  if (a.rows == 0) return true;
  const View<Real> factor = scratch_copy(arena, a);
  if (!lapack_cholesky(blas_int(a.rows), factor.data, blas_int(a.rows)))
    return false;
  for (int64_t i = 0; i < a.rows; ++i) {
    std::copy_n(factor.row(i), i + 1, a.row(i));
    std::fill(a.row(i) + i + 1, a.row(i) + a.cols, Real{0});
  }
  return true;
}

void check_square(const Matrices& a) {
  CANZONA_CHECK_EQ(a.rows, a.cols, "square");
}

void check_tall(const Matrices& a) {
  CANZONA_CHECK(a.rows >= a.cols, "QR of ", a.rows, "x", a.cols);
}

void check_results(std::span<bool> succeeded, const Matrices& a) {
  CANZONA_CHECK_EQ(succeeded.size(), a.count, "results of a decomposition");
}

}  // namespace

void CpuEngine::eigh(Matrices a, Matrices values, std::span<bool> succeeded) {
  check_square(a);
  check_results(succeeded, a);
  CANZONA_CHECK_EQ(values.cols, a.rows, "eigenvalues");
  for_each_matrix(
      [&](auto one, auto its_values, int64_t i) {
        Arena::Scope scope(arena());
        succeeded[static_cast<size_t>(i)] = eigh_one(arena(), one, its_values);
      },
      a, values);
}

void CpuEngine::qr(Matrices a, std::span<bool> succeeded) {
  check_tall(a);
  check_results(succeeded, a);
  for_each_matrix(
      [&](auto one, int64_t i) {
        Arena::Scope scope(arena());
        succeeded[static_cast<size_t>(i)] = qr_one(arena(), one);
      },
      a);
}

void CpuEngine::cholesky_qr(Matrices a, std::span<bool> succeeded) {
  check_tall(a);
  check_results(succeeded, a);
  for_each_matrix(
      [&](auto one, int64_t i) {
        Arena::Scope scope(arena());
        succeeded[static_cast<size_t>(i)] = cholesky_qr_one(arena(), one);
      },
      a);
}

void CpuEngine::cholesky(Matrices a, std::span<bool> succeeded) {
  check_square(a);
  check_results(succeeded, a);
  for_each_matrix(
      [&](auto one, int64_t i) {
        Arena::Scope scope(arena());
        succeeded[static_cast<size_t>(i)] = cholesky_one(arena(), one);
      },
      a);
}

}  // namespace canzona
