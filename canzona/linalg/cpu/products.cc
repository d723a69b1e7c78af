#include "canzona/linalg/cpu/products.h"

#include <algorithm>
#include <limits>

#include "canzona/base/check.h"
#include "canzona/linalg/cpu/blas.h"

namespace canzona {
namespace {

constexpr int kRowMajor = 101;
constexpr int kLower = 122;
constexpr int kRight = 142;
constexpr int kNonUnit = 131;
constexpr int kTransposed = 112;

int blas_op(Op op) { return op == Op::kNone ? 111 : kTransposed; }

// The library refuses a leading dimension of 0, even if nothing is read.
int blas_stride(int64_t stride) {
  return blas_int(std::max<int64_t>(stride, 1));
}

void gemm(int op_a, int op_b, int m, int n, int k, float alpha, const float* a,
          int lda, const float* b, int ldb, float beta, float* c, int ldc) {
  cblas_sgemm(kRowMajor, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c,
              ldc);
}
void gemm(int op_a, int op_b, int m, int n, int k, double alpha,
          const double* a, int lda, const double* b, int ldb, double beta,
          double* c, int ldc) {
  cblas_dgemm(kRowMajor, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c,
              ldc);
}

void syrk(int op, int n, int k, float alpha, const float* a, int lda,
          float beta, float* c, int ldc) {
  cblas_ssyrk(kRowMajor, kLower, op, n, k, alpha, a, lda, beta, c, ldc);
}
void syrk(int op, int n, int k, double alpha, const double* a, int lda,
          double beta, double* c, int ldc) {
  cblas_dsyrk(kRowMajor, kLower, op, n, k, alpha, a, lda, beta, c, ldc);
}

void trsm(int m, int n, const float* l, int ldl, float* b, int ldb) {
  cblas_strsm(kRowMajor, kRight, kLower, kTransposed, kNonUnit, m, n, 1.0F, l,
              ldl, b, ldb);
}
void trsm(int m, int n, const double* l, int ldl, double* b, int ldb) {
  cblas_dtrsm(kRowMajor, kRight, kLower, kTransposed, kNonUnit, m, n, 1.0, l,
              ldl, b, ldb);
}

}  // namespace

int blas_int(int64_t size) {
  CANZONA_CHECK(size >= 0 && size <= std::numeric_limits<int>::max(),
                "a side of ", size, " elements");
  return static_cast<int>(size);
}

template <class Real>
void product(View<Real> c, Same<Real> alpha, Same<ConstView<Real>> a, Op op_a,
             Same<ConstView<Real>> b, Op op_b, Same<Real> beta) {
  const int64_t inner = op_a == Op::kNone ? a.cols : a.rows;
  CANZONA_CHECK_EQ(c.rows, op_a == Op::kNone ? a.rows : a.cols, "rows");
  CANZONA_CHECK_EQ(c.cols, op_b == Op::kNone ? b.cols : b.rows, "columns");
  CANZONA_CHECK_EQ(inner, op_b == Op::kNone ? b.rows : b.cols, "inner side");
  if (c.rows == 0 || c.cols == 0) return;
  gemm(blas_op(op_a), blas_op(op_b), blas_int(c.rows), blas_int(c.cols),
       blas_int(inner), alpha, a.data, blas_stride(a.stride), b.data,
       blas_stride(b.stride), beta, c.data, blas_stride(c.stride));
}

template <class Real>
void square_lower(View<Real> c, Same<Real> alpha, Same<ConstView<Real>> a,
                  Op op_a, Same<Real> beta) {
  const bool plain = op_a == Op::kNone;
  CANZONA_CHECK_EQ(c.rows, c.cols, "square");
  CANZONA_CHECK_EQ(c.rows, plain ? a.rows : a.cols, "rows");
  if (c.rows == 0) return;
  syrk(blas_op(op_a), blas_int(c.rows), blas_int(plain ? a.cols : a.rows),
       alpha, a.data, blas_stride(a.stride), beta, c.data,
       blas_stride(c.stride));
}

// Halves recursively until a diagonal block is small. Squares are cheaper than
// strips of the same area, since both operands are packed for every call.
template <class Real>
void product_lower(View<Real> c, Same<ConstView<Real>> a,
                   Same<ConstView<Real>> b) {
  constexpr int64_t kSmall = 96;
  constexpr int64_t kStep = 16;
  const int64_t n = c.rows;
  CANZONA_CHECK_EQ(c.rows, c.cols, "square");
  if (n <= kSmall) {
    product(c, 1, a, Op::kNone, b, Op::kNone, 0);
    return;
  }
  const int64_t inner = a.cols;
  const int64_t half = (n / 2 + kStep - 1) / kStep * kStep;
  const ConstView<Real> low_a = a.block(half, 0, n - half, inner);
  const ConstView<Real> left_b = b.block(0, 0, inner, half);
  product_lower(c.block(0, 0, half, half), a.block(0, 0, half, inner), left_b);
  product(c.block(half, 0, n - half, half), 1, low_a, Op::kNone, left_b,
          Op::kNone, 0);
  product_lower(c.block(half, half, n - half, n - half), low_a,
                b.block(0, half, inner, n - half));
}

template <class Real>
void solve_lower_transposed(View<Real> b, Same<ConstView<Real>> l) {
  CANZONA_CHECK_EQ(l.rows, l.cols, "square");
  CANZONA_CHECK_EQ(b.cols, l.rows, "columns");
  if (b.rows == 0 || b.cols == 0) return;
  trsm(blas_int(b.rows), blas_int(b.cols), l.data, blas_stride(l.stride),
       b.data, blas_stride(b.stride));
}

template void product(View<float>, float, ConstView<float>, Op,
                      ConstView<float>, Op, float);
template void product(View<double>, double, ConstView<double>, Op,
                      ConstView<double>, Op, double);
template void square_lower(View<float>, float, ConstView<float>, Op, float);
template void square_lower(View<double>, double, ConstView<double>, Op, double);
template void product_lower(View<float>, ConstView<float>, ConstView<float>);
template void product_lower(View<double>, ConstView<double>, ConstView<double>);
template void solve_lower_transposed(View<float>, ConstView<float>);
template void solve_lower_transposed(View<double>, ConstView<double>);

}  // namespace canzona
