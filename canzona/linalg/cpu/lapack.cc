#include "canzona/linalg/cpu/lapack.h"

#include <algorithm>
#include <cmath>

#include "canzona/base/check.h"
#include "canzona/linalg/cpu/blas.h"
#include "canzona/linalg/cpu/products.h"

namespace canzona {
namespace {

void syevd(int n, float* a, float* values, float* work, int lwork, int* iwork,
           int liwork, int* info) {
  ssyevd_("V", "L", &n, a, &n, values, work, &lwork, iwork, &liwork, info, 1,
          1);
}
void syevd(int n, double* a, double* values, double* work, int lwork,
           int* iwork, int liwork, int* info) {
  dsyevd_("V", "L", &n, a, &n, values, work, &lwork, iwork, &liwork, info, 1,
          1);
}

void geqrf(int m, int n, float* a, float* tau, float* work, int lwork,
           int* info) {
  sgeqrf_(&m, &n, a, &m, tau, work, &lwork, info);
}
void geqrf(int m, int n, double* a, double* tau, double* work, int lwork,
           int* info) {
  dgeqrf_(&m, &n, a, &m, tau, work, &lwork, info);
}

void orgqr(int m, int n, float* a, const float* tau, float* work, int lwork,
           int* info) {
  sorgqr_(&m, &n, &n, a, &m, tau, work, &lwork, info);
}
void orgqr(int m, int n, double* a, const double* tau, double* work, int lwork,
           int* info) {
  dorgqr_(&m, &n, &n, a, &m, tau, work, &lwork, info);
}

void potrf(int n, float* a, int lda, int* info) {
  spotrf_("U", &n, a, &lda, info, 1);
}
void potrf(int n, double* a, int lda, int* info) {
  dpotrf_("U", &n, a, &lda, info, 1);
}

constexpr int kAsk = -1;  // as a workspace's size: how much would be best?

// The answer comes as a real number, which fp32 may have rounded down.
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
  syevd(n, a, values, &asked, kAsk, &iasked, kAsk, &info);
  CANZONA_CHECK_EQ(info, 0, "workspace of syevd, n = ", n);
  const int lwork = answered(asked, 1 + 6 * side + 2 * side * side);
  const int liwork = blas_int(std::max<int64_t>(iasked, 3 + 5 * side));
  Real* work = arena.take_array<Real>(lwork);
  int* iwork = arena.take_array<int>(liwork);
  syevd(n, a, values, work, lwork, iwork, liwork, &info);
  return info == 0;
}

template <class Real>
bool lapack_qr(Arena& arena, int rows, int cols, Real* a) {
  Real asked[2] = {};
  int info = 0;
  Real* tau = arena.take_array<Real>(cols);
  geqrf(rows, cols, a, tau, &asked[0], kAsk, &info);
  CANZONA_CHECK_EQ(info, 0, "workspace of geqrf, ", rows, "x", cols);
  orgqr(rows, cols, a, tau, &asked[1], kAsk, &info);
  CANZONA_CHECK_EQ(info, 0, "workspace of orgqr, ", rows, "x", cols);
  const int lwork = answered(std::max(asked[0], asked[1]), cols);
  Real* work = arena.take_array<Real>(lwork);
  geqrf(rows, cols, a, tau, work, lwork, &info);
  if (info != 0) return false;
  orgqr(rows, cols, a, tau, work, lwork, &info);
  return info == 0;
}

template <class Real>
bool lapack_cholesky(int n, Real* a, int stride) {
  int info = 0;
  potrf(n, a, stride, &info);
  return info == 0;
}

template bool lapack_eigh(Arena&, int, float*, float*);
template bool lapack_eigh(Arena&, int, double*, double*);
template bool lapack_qr(Arena&, int, int, float*);
template bool lapack_qr(Arena&, int, int, double*);
template bool lapack_cholesky(int, float*, int);
template bool lapack_cholesky(int, double*, int);

}  // namespace canzona
