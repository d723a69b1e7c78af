#include "canzona/linalg/cpu/products.h"

#include <algorithm>
#include <limits>

#include "canzona/linalg/cpu/blas.h"
#include "canzona/linalg/cpu/blas_environment.h"
#include "canzona/linalg/cpu/lower_avx512.h"
#include "canzona/linalg/of_type.h"

namespace canzona::linalg {
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
  of_type<Real>(cblas_sgemm, cblas_dgemm)(
      kRowMajor, blas_op(op_a), blas_op(op_b), blas_int(c.rows),
      blas_int(c.cols), blas_int(inner), alpha, a.data, blas_stride(a.stride),
      b.data, blas_stride(b.stride), beta, c.data, blas_stride(c.stride));
}

template <class Real>
void square_lower(View<Real> c, Same<Real> alpha, Same<ConstView<Real>> a,
                  Op op_a, Same<Real> beta) {
  const bool plain = op_a == Op::kNone;
  CANZONA_CHECK_EQ(c.rows, c.cols, "square");
  CANZONA_CHECK_EQ(c.rows, plain ? a.rows : a.cols, "rows");
  if (c.rows == 0) return;
  of_type<Real>(cblas_ssyrk, cblas_dsyrk)(
      kRowMajor, kLower, blas_op(op_a), blas_int(c.rows),
      blas_int(plain ? a.cols : a.rows), alpha, a.data, blas_stride(a.stride),
      beta, c.data, blas_stride(c.stride));
}

namespace {

// Computes the lower triangle of C = alpha·A·B + beta·C for symmetric A and B
// by a kernel of our own; returns false if this CPU has none.
template <class Real>
bool own_lower(PackingRoom&, View<Real>, Same<Real>, ConstView<Real>,
               ConstView<Real>, Same<Real>) {
  return false;
}
#if defined(__x86_64__)
bool own_lower(PackingRoom& room, View<float> c, float alpha,
               ConstView<float> a, ConstView<float> b, float beta) {
  if (room.data() == nullptr) return false;
  product_lower_avx512(c.data, c.stride, c.rows, alpha, {a.data, a.stride},
                       {b.data, b.stride}, beta, room.data());
  return true;
}
#endif

// Halves recursively until a diagonal block is small. Squares are cheaper than
// strips of the same area, since both operands are packed for every call.
template <class Real>
void lower_by_blocks(View<Real> c, ConstView<Real> a, ConstView<Real> b) {
  constexpr int64_t kSmall = 96;
  constexpr int64_t kStep = 16;
  const int64_t n = c.rows;
  if (n <= kSmall) {
    product<Real>(c, 1, a, Op::kNone, b, Op::kNone, 0);
    return;
  }
  const int64_t inner = a.cols;
  const int64_t half = (n / 2 + kStep - 1) / kStep * kStep;
  const ConstView<Real> low_a = a.block(half, 0, n - half, inner);
  const ConstView<Real> left_b = b.block(0, 0, inner, half);
  lower_by_blocks(c.block(0, 0, half, half), a.block(0, 0, half, inner),
                  left_b);
  product<Real>(c.block(half, 0, n - half, half), 1, low_a, Op::kNone, left_b,
                Op::kNone, 0);
  lower_by_blocks(c.block(half, half, n - half, n - half), low_a,
                  b.block(0, half, inner, n - half));
}

template <class Real>
void check_square(View<Real> c, ConstView<Real> a) {
  CANZONA_CHECK_EQ(c.rows, c.cols, "square");
  CANZONA_CHECK_EQ(a.rows, c.rows, "rows");
  CANZONA_CHECK_EQ(a.cols, c.cols, "columns");
}

}  // namespace

#if defined(__x86_64__)
struct alignas(64) PackingRoom::Memory {
  float floats[kLowerScratch];
};
PackingRoom::PackingRoom()
    : memory_(blas_has_avx512() ? new Memory : nullptr) {}
float* PackingRoom::data() const {
  return memory_ == nullptr ? nullptr : memory_->floats;
}
#else
struct PackingRoom::Memory {};
PackingRoom::PackingRoom() = default;
float* PackingRoom::data() const { return nullptr; }
#endif
PackingRoom::~PackingRoom() = default;

template <class Real>
void square_symmetric_lower(PackingRoom& room, View<Real> c, Same<Real> alpha,
                            Same<ConstView<Real>> a, Same<Real> beta) {
  // Above this side the library's own kernel reaches the rate of its products.
  constexpr int64_t kMostSide = 1024;
  check_square(c, a);
  if (c.rows > kMostSide || !own_lower(room, c, alpha, a, a, beta))
    square_lower(c, alpha, a, Op::kNone, beta);
}

template <class Real>
void product_lower(PackingRoom& room, View<Real> c, Same<ConstView<Real>> a,
                   Same<ConstView<Real>> b) {
  check_square(c, a);
  check_square(c, b);
  if (!own_lower(room, c, 1, a, b, 0)) lower_by_blocks<Real>(c, a, b);
}

template <class Real>
void solve_lower_transposed(View<Real> b, Same<ConstView<Real>> l) {
  CANZONA_CHECK_EQ(l.rows, l.cols, "square");
  CANZONA_CHECK_EQ(b.cols, l.rows, "columns");
  if (b.rows == 0 || b.cols == 0) return;
  of_type<Real>(cblas_strsm, cblas_dtrsm)(
      kRowMajor, kRight, kLower, kTransposed, kNonUnit, blas_int(b.rows),
      blas_int(b.cols), Real{1}, l.data, blas_stride(l.stride), b.data,
      blas_stride(b.stride));
}

template void product(View<float>, float, ConstView<float>, Op,
                      ConstView<float>, Op, float);
template void product(View<double>, double, ConstView<double>, Op,
                      ConstView<double>, Op, double);
template void square_lower(View<float>, float, ConstView<float>, Op, float);
template void square_lower(View<double>, double, ConstView<double>, Op, double);
template void square_symmetric_lower(PackingRoom&, View<float>, float,
                                     ConstView<float>, float);
template void square_symmetric_lower(PackingRoom&, View<double>, double,
                                     ConstView<double>, double);
template void product_lower(PackingRoom&, View<float>, ConstView<float>,
                            ConstView<float>);
template void product_lower(PackingRoom&, View<double>, ConstView<double>,
                            ConstView<double>);
template void solve_lower_transposed(View<float>, ConstView<float>);
template void solve_lower_transposed(View<double>, ConstView<double>);

}  // namespace canzona::linalg
