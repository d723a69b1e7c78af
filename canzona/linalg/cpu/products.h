// Products of row-major fp32 and fp64 matrices by OpenBLAS; sides may be 0 and
// sizes are checked. Real is float or double. Any thread may call.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "canzona/base/check.h"
#include "canzona/linalg/engine.h"
#include "canzona/linalg/matrix.h"

namespace canzona::linalg {

// One matrix, typed. Real may be const.
template <class Real>
struct View {
  Real* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // from row to row

  Real* row(int64_t i) const { return data + i * stride; }
  View block(int64_t row, int64_t col, int64_t num_rows,
             int64_t num_cols) const {
    return {data + row * stride + col, num_rows, num_cols, stride};
  }
  operator View<const Real>() const {  // NOLINT: implicit
    return {data, rows, cols, stride};
  }
};

template <class Real>
using ConstView = View<const Real>;

template <class Real>
View<Real> view_of(Matrices one) {
  return {one.as<Real>(), one.rows, one.cols, one.row_stride};
}
template <class Real>
ConstView<Real> view_of(ConstMatrices one) {
  return {one.as<Real>(), one.rows, one.cols, one.row_stride};
}

// Keeps template arguments from being deduced from more than one argument.
template <class T>
using Same = std::type_identity_t<T>;

// C = alpha·op(A)·op(B) + beta·C; with beta 0 the old C is ignored.
template <class Real>
void product(View<Real> c, Same<Real> alpha, Same<ConstView<Real>> a, Op op_a,
             Same<ConstView<Real>> b, Op op_b, Same<Real> beta);

// The lower triangle of C = alpha·op(A)·op(A)ᵀ + beta·C.
template <class Real>
void square_lower(View<Real> c, Same<Real> alpha, Same<ConstView<Real>> a,
                  Op op_a, Same<Real> beta);

// Memory in which products of symmetric matrices pack their operands, for one
// thread at a time. A new one is not cleared; it is empty on a CPU for which
// there is no kernel of ours.
class PackingRoom {
 public:
  PackingRoom();
  ~PackingRoom();

  float* data() const;  // null if empty

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

// The lower triangle of C = alpha·A² + beta·C for a symmetric A.
template <class Real>
void square_symmetric_lower(PackingRoom& room, View<Real> c, Same<Real> alpha,
                            Same<ConstView<Real>> a, Same<Real> beta);

// The lower triangle of C = A·B for symmetric A and B, and possibly more above
// it.
template <class Real>
void product_lower(PackingRoom& room, View<Real> c, Same<ConstView<Real>> a,
                   Same<ConstView<Real>> b);

// B = B·L⁻ᵀ for a lower triangular L.
template <class Real>
void solve_lower_transposed(View<Real> b, Same<ConstView<Real>> l);

// Converts a size to the library's type.
int blas_int(int64_t size);

// Typed loops over the matrices of batches.

// Calls work(Real{}) with the type that `dtype` names.
template <class Work>
void with_real(DType dtype, const Work& work) {
  CANZONA_CHECK(dtype == DType::kFp32 || dtype == DType::kFp64,
                "not an operation of ", to_string(dtype));
  if (dtype == DType::kFp32)
    work(float{});
  else
    work(double{});
}

inline void check_same_count(int64_t count, int64_t expected) {
  CANZONA_CHECK_EQ(count, expected, "matrices in a batch");
}

// Calls work(View<Real>…, i) for each matrix i of the batches.
template <class Work, class First, class... Rest>
void for_each_matrix(const Work& work, First first, Rest... rest) {
  (check_same_count(rest.count, first.count), ...);
  with_real(first.dtype, [&](auto real) {
    using Real = decltype(real);
    for (int64_t i = 0; i < first.count; ++i)
      work(view_of<Real>(first.at(i)), view_of<Real>(rest.at(i))..., i);
  });
}

template <class To, class From>
void check_same_shape(const To& to, const From& from) {
  CANZONA_CHECK_EQ(to.rows, from.rows, "rows");
  CANZONA_CHECK_EQ(to.cols, from.cols, "columns");
}

}  // namespace canzona::linalg
