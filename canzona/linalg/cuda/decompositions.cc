// Decompositions and solves of the CUDA engine. The libraries are column-major
// and we are row-major: a symmetric matrix is the same for both, a lower factor
// is its upper one, and QR gets a transposed copy.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/kernels.h"
#include "canzona/linalg/cuda/libraries.h"
#include "canzona/linalg/of_type.h"

namespace canzona::linalg {
namespace {

void check_square(const Matrices& a) {
  CANZONA_CHECK_EQ(a.rows, a.cols, "square");
}

void check_results(std::span<bool> succeeded, const Matrices& a) {
  CANZONA_CHECK_EQ(succeeded.size(), a.count, "results of a decomposition");
}

// True if there is nothing to do; then all are marked as succeeded.
bool is_empty(const Matrices& a, std::span<bool> succeeded) {
  if (a.cols != 0 && a.count != 0) return false;
  std::ranges::fill(succeeded, true);
  return true;
}

void tell(CudaEngine& engine, const int32_t* info, std::span<bool> succeeded) {
  const auto found =
      engine.results(info, static_cast<int64_t>(succeeded.size()));
  std::ranges::transform(found, succeeded.begin(),
                         [](int32_t failure) { return failure == 0; });
}

}  // namespace

void CudaEngine::eigh(Matrices a, Matrices values, std::span<bool> succeeded) {
  check_square(a);
  check_results(succeeded, a);
  CANZONA_CHECK_EQ(values.cols, a.rows, "eigenvalues");
  needs_results();
  if (is_empty(a, succeeded)) return;
  Arena::Scope scope(arena());
  auto* info = arena().take_array<int32_t>(a.count);
  const Matrices vectors =
      tidy_matrices(arena(), a.dtype, a.rows, a.cols, a.count);
  copy(vectors, a);
  solve_eigh(*this, vectors, values, info);
  launch_transpose(*this, a, vectors);
  tell(*this, info, succeeded);
}

void CudaEngine::qr(Matrices a, std::span<bool> succeeded) {
  CANZONA_CHECK(a.rows >= a.cols, "QR of ", a.rows, "x", a.cols);
  check_results(succeeded, a);
  needs_results();
  if (is_empty(a, succeeded)) return;
  Arena::Scope scope(arena());
  auto* info = arena().take_array<int32_t>(a.count);
  const Matrices columns =
      tidy_matrices(arena(), a.dtype, a.cols, a.rows, a.count);
  launch_transpose(*this, columns, a);
  solve_qr(*this, columns, info);
  launch_transpose(*this, a, columns);
  tell(*this, info, succeeded);
}

void CudaEngine::cholesky(Matrices a, std::span<bool> succeeded) {
  check_square(a);
  check_results(succeeded, a);
  needs_results();
  if (is_empty(a, succeeded)) return;
  Arena::Scope scope(arena());
  auto* info = arena().take_array<int32_t>(a.count);
  const Matrices factor =
      tidy_matrices(arena(), a.dtype, a.rows, a.cols, a.count);
  copy(factor, a);
  solve_cholesky(*this, factor, info);
  launch_clear_above(*this, factor);
  copy(a, factor);
  tell(*this, info, succeeded);
}

void CudaEngine::solve_right_transposed(Matrices b, ConstMatrices l) {
  CANZONA_CHECK_EQ(l.rows, l.cols, "square");
  CANZONA_CHECK_EQ(b.cols, l.rows, "columns");
  CANZONA_CHECK_EQ(b.count, l.count, "matrices in a batch");
  CANZONA_CHECK(b.dtype == l.dtype, "types of a solve");
  if (b.elements() == 0 || b.count == 0) return;
  Arena::Scope scope(arena());
  Matrices right = b;
  ConstMatrices factor = l;
  if (!is_tidy(b)) {
    right = tidy_matrices(arena(), b.dtype, b.rows, b.cols, b.count);
    copy(right, b);
  }
  if (!is_tidy(l)) {
    const Matrices tidy =
        tidy_matrices(arena(), l.dtype, l.rows, l.cols, l.count);
    copy(tidy, l);
    factor = tidy;
  }
  solve_triangular(*this, right, factor);
  if (right.data != b.data) copy(b, right);
}

namespace {

// Shifted Cholesky QR on a GPU, for all matrices of a batch at once. The
// numbers that decide success stay on the device until the end.

// Scratch memory for some matrices of the batch.
struct Rooms {
  Matrices a;
  Matrices other;  // the result of the next round
  Matrices gram;
  Matrices inverse;
  int32_t* info;
  int32_t* far;  // 1: another round is needed
  double* squares;
  CholeskyQrState state;

  Rooms some(int64_t begin, int64_t size) const {
    const int64_t column = begin * a.cols;
    return {a.part(begin, size),
            other.part(begin, size),
            gram.part(begin, size),
            inverse.part(begin, size),
            info + begin,
            far + begin,
            squares + column,
            {a.cols, size, state.hopeless + begin, state.lengths + column,
             state.distances + column}};
  }
};

Rooms take_rooms(Arena& arena, Matrices a) {
  const auto room = [&](int64_t rows) {
    return tidy_matrices(arena, a.dtype, rows, a.cols, a.count);
  };
  const int64_t columns = a.cols * a.count;
  return {
      a,
      room(a.rows),
      room(a.cols),
      room(a.cols),
      arena.take_array<int32_t>(a.count),
      arena.take_array<int32_t>(a.count),
      arena.take_array<double>(columns),
      {a.cols, a.count, arena.take_array<int32_t>(a.count),
       arena.take_array<double>(columns), arena.take_array<double>(columns)}};
}

// Scaling columns by positive numbers does not change the orthogonal factor, so
// every round begins by normalizing them.
class CholeskyQr {
 public:
  CholeskyQr(CudaEngine& engine, Matrices a)
      : engine_(engine), all_(take_rooms(engine.arena(), a)) {}

  // The shift keeps the first factorization from breaking down. The result is
  // usually nearly orthonormal, and a plain round does the rest; otherwise it
  // is well conditioned and takes two. Returns for each matrix whether it
  // failed.
  const int32_t* run() {
    launch_begin(engine_, all_.state);
    launch_bring_into_range(engine_, all_.state, all_.a);
    normalise_columns(all_, false);
    form_gram(all_);
    engine_.add_diagonal(all_.gram, shift());
    orthogonalise(all_);
    normalise_columns(all_, true);
    form_gram(all_);
    launch_find_far(engine_, all_.far, all_.gram);
    orthogonalise(all_);
    finish_far_ones();
    launch_require_distance(engine_, all_.state, noise());
    // Sums that are truncated, not rounded, leave columns slightly too long.
    normalise_columns(all_, false);
    return all_.state.hopeless;
  }

 private:
  // Between rounds `follow` is true: what a column lost in length, it had in
  // common with those before it.
  void normalise_columns(const Rooms& rooms, bool follow) {
    column_sums_on_device(engine_, rooms.squares, rooms.a, rooms.a);
    launch_take_lengths(engine_, rooms.state, rooms.squares, follow);
    launch_normalise(engine_, rooms.state, rooms.a);
  }

  void form_gram(const Rooms& rooms) {
    engine_.lower_product(rooms.gram, 1, rooms.a, Op::kTranspose, 0);
  }

  // A = A·R⁻¹ for the factor R of the matrix in `gram`.
  void orthogonalise(Rooms& rooms) {
    invert_factor(engine_, rooms.gram, rooms.inverse, rooms.info);
    launch_take_factor(engine_, rooms.state, rooms.info, rooms.gram);
    times_transposed_inverse(engine_, rooms.other, rooms.a, rooms.inverse);
    std::swap(rooms.a, rooms.other);
  }

  // The last round must find little to do, because it squares the remaining
  // error, down to rounding. This is decided for each matrix.
  void finish_far_ones() {
    const auto found = engine_.results(all_.far, all_.a.count);
    const std::vector<int32_t> far(found.begin(), found.end());
    for (int64_t begin = 0; begin < all_.a.count; ++begin) {
      int64_t end = begin;
      while (end < all_.a.count && far[static_cast<size_t>(end)] != 0) ++end;
      if (end > begin) finish_far(all_.some(begin, end - begin));
      begin = end;
    }
  }
  void finish_far(Rooms rooms) {
    normalise_columns(rooms, true);
    form_gram(rooms);
    launch_find_far(engine_, rooms.far, rooms.gram);
    launch_give_up(engine_, rooms.state, rooms.far);
    orthogonalise(rooms);
    engine_.copy(rooms.other, rooms.a);
  }

  // A column in the span of the others comes out as the rounding error of one
  // or two operations, scaled to length 1.
  double noise() const {
    return all_.a.dtype == DType::kFp32
               ? 8 * double{std::numeric_limits<float>::epsilon()}
               : 8 * std::numeric_limits<double>::epsilon();
  }

  // For columns of length 1. In fp32 the shift required by theory would be as
  // large as the matrix; a hundred roundings have proved sufficient.
  double shift() const {
    if (all_.a.dtype == DType::kFp32) return 1e-5;
    const auto m = static_cast<double>(all_.a.rows);
    const auto n = static_cast<double>(all_.a.cols);
    constexpr double kUnit = std::numeric_limits<double>::epsilon() / 2;
    return 11 * (m * n + n * (n + 1)) * kUnit * n;
  }

  CudaEngine& engine_;
  Rooms all_;
};

}  // namespace

void CudaEngine::cholesky_qr(Matrices a, std::span<bool> succeeded) {
  CANZONA_CHECK(a.rows >= a.cols, "QR of ", a.rows, "x", a.cols);
  check_results(succeeded, a);
  needs_results();
  if (is_empty(a, succeeded)) return;
  Arena::Scope scope(arena());
  const Matrices tidy =
      tidy_matrices(arena(), a.dtype, a.rows, a.cols, a.count);
  copy(tidy, a);
  // A basis needs full fp32 accuracy.
  const Products wanted = products_;
  if (products_ == Products::kBf16x3) products_ = Products::kBf16x6;
  const int32_t* hopeless = nullptr;
  try {
    hopeless = CholeskyQr(*this, tidy).run();
  } catch (...) {
    products_ = wanted;
    throw;
  }
  products_ = wanted;
  copy(a, tidy);
  tell(*this, hopeless, succeeded);
}

namespace {

// Up to this side the Cholesky factors of a batch are computed in one call.
constexpr int64_t kSmall = 512;
constexpr int64_t kBorder = 128;

int64_t tidy_stride(DType dtype, int64_t cols) {
  const int64_t step = kBorder / size_of(dtype);
  return (cols + step - 1) / step * step;
}

int library_int(int64_t size) {
  CANZONA_CHECK(size >= 0 && size <= std::numeric_limits<int>::max(),
                "a side of ", size, " elements");
  return static_cast<int>(size);
}

cudaDataType solver_type(DType dtype) {
  return dtype == DType::kFp32 ? CUDA_R_32F : CUDA_R_64F;
}

// The scratch memory that a routine requires, on the device and on the host.
class Work {
 public:
  void take(Arena& arena) {
    device_ = arena.take(static_cast<int64_t>(device_bytes));
    host_.resize(host_bytes);
  }
  std::byte* device() const { return device_; }
  std::byte* host() { return host_.data(); }

  size_t device_bytes = 0;
  size_t host_bytes = 0;

 private:
  std::byte* device_ = nullptr;
  std::vector<std::byte> host_;
};

template <class Real>
std::vector<Real*> places(const Matrices& m) {
  std::vector<Real*> result;
  for (int64_t i = 0; i < m.count; ++i) result.push_back(m.at(i).as<Real>());
  return result;
}
void eigh_one(CudaEngine& engine, Matrices a, Matrices values, int32_t* info) {
  Arena::Scope scope(engine.arena());
  const cudaDataType type = solver_type(a.dtype);
  const auto handle = engine.cusolver();
  const auto params = engine.cusolver_params();
  Work work;
  check_cusolver(
      cusolverDnXsyevd_bufferSize(handle, params, CUSOLVER_EIG_MODE_VECTOR,
                                  CUBLAS_FILL_MODE_LOWER, a.rows, type, a.data,
                                  a.row_stride, type, values.data, type,
                                  &work.device_bytes, &work.host_bytes),
      "cusolverDnXsyevd_bufferSize");
  work.take(engine.arena());
  check_cusolver(
      cusolverDnXsyevd(handle, params, CUSOLVER_EIG_MODE_VECTOR,
                       CUBLAS_FILL_MODE_LOWER, a.rows, type, a.data,
                       a.row_stride, type, values.data, type, work.device(),
                       work.device_bytes, work.host(), work.host_bytes, info),
      "cusolverDnXsyevd");
}

void geqrf(CudaEngine& engine, const Matrices& a, std::byte* tau,
           int32_t* info) {
  Arena::Scope scope(engine.arena());
  const cudaDataType type = solver_type(a.dtype);
  const auto handle = engine.cusolver();
  const auto params = engine.cusolver_params();
  Work work;
  check_cusolver(cusolverDnXgeqrf_bufferSize(
                     handle, params, a.cols, a.rows, type, a.data, a.row_stride,
                     type, tau, type, &work.device_bytes, &work.host_bytes),
                 "cusolverDnXgeqrf_bufferSize");
  work.take(engine.arena());
  check_cusolver(
      cusolverDnXgeqrf(handle, params, a.cols, a.rows, type, a.data,
                       a.row_stride, type, tau, type, work.device(),
                       work.device_bytes, work.host(), work.host_bytes, info),
      "cusolverDnXgeqrf");
}

template <class Real>
void form_factor(CudaEngine& engine, const Matrices& a, const Real* tau,
                 int32_t* info) {
  Arena::Scope scope(engine.arena());
  const auto handle = engine.cusolver();
  const int m = library_int(a.cols);
  const int n = library_int(a.rows);
  const int stride = library_int(a.row_stride);
  int size = 0;
  check_cusolver(
      of_type<Real>(cusolverDnSorgqr_bufferSize, cusolverDnDorgqr_bufferSize)(
          handle, m, n, n, a.as<Real>(), stride, tau, &size),
      "cusolverDnXorgqr_bufferSize");
  Real* work = engine.arena().take_array<Real>(size);
  check_cusolver(
      of_type<Real>(cusolverDnSorgqr, cusolverDnDorgqr)(
          handle, m, n, n, a.as<Real>(), stride, tau, work, size, info),
      "cusolverDnXorgqr");
}

void potrf_one(CudaEngine& engine, const Matrices& a, int32_t* info) {
  Arena::Scope scope(engine.arena());
  const cudaDataType type = solver_type(a.dtype);
  const auto handle = engine.cusolver();
  const auto params = engine.cusolver_params();
  Work work;
  check_cusolver(
      cusolverDnXpotrf_bufferSize(handle, params, CUBLAS_FILL_MODE_UPPER,
                                  a.rows, type, a.data, a.row_stride, type,
                                  &work.device_bytes, &work.host_bytes),
      "cusolverDnXpotrf_bufferSize");
  work.take(engine.arena());
  check_cusolver(
      cusolverDnXpotrf(handle, params, CUBLAS_FILL_MODE_UPPER, a.rows, type,
                       a.data, a.row_stride, type, work.device(),
                       work.device_bytes, work.host(), work.host_bytes, info),
      "cusolverDnXpotrf");
}

}  // namespace

Matrices tidy_matrices(Arena& arena, DType dtype, int64_t rows, int64_t cols,
                       int64_t count) {
  Matrices m;
  m.dtype = dtype;
  m.rows = rows;
  m.cols = cols;
  m.row_stride = tidy_stride(dtype, cols);
  m.count = count;
  m.matrix_stride = rows * m.row_stride;
  m.data = arena.take(count * m.matrix_stride * size_of(dtype));
  return m;
}

bool is_tidy(const ConstMatrices& m) {
  return m.row_stride == tidy_stride(m.dtype, m.cols) &&
         reinterpret_cast<uintptr_t>(m.data) % kBorder == 0 &&
         (m.count <= 1 || m.matrix_stride * size_of(m.dtype) % kBorder == 0);
}

void solve_eigh(CudaEngine& engine, Matrices a, Matrices values,
                int32_t* info) {
  Arena::Scope scope(engine.arena());
  const Matrices found =
      tidy_matrices(engine.arena(), a.dtype, 1, a.rows, a.count);
  for (int64_t i = 0; i < a.count; ++i)
    eigh_one(engine, a.at(i), found.at(i), info + i);
  engine.copy(values, found);
}

void solve_qr(CudaEngine& engine, Matrices a, int32_t* info) {
  Arena::Scope scope(engine.arena());
  auto* formed = engine.arena().take_array<int32_t>(a.count);
  with_real_type(a.dtype, [&]<class Real>(Real) {
    Real* tau = engine.arena().take_array<Real>(a.rows);
    for (int64_t i = 0; i < a.count; ++i) {
      geqrf(engine, a.at(i), reinterpret_cast<std::byte*>(tau), info + i);
      form_factor(engine, a.at(i), tau, formed + i);
    }
  });
}

void solve_cholesky(CudaEngine& engine, Matrices a, int32_t* info) {
  if (a.rows > kSmall) {
    for (int64_t i = 0; i < a.count; ++i) potrf_one(engine, a.at(i), info + i);
    return;
  }
  with_real_type(a.dtype, [&]<class Real>(Real) {
    Real* const* all = engine.table(places<Real>(a));
    check_cusolver(
        of_type<Real>(cusolverDnSpotrfBatched, cusolverDnDpotrfBatched)(
            engine.cusolver(), CUBLAS_FILL_MODE_UPPER, library_int(a.rows),
            const_cast<Real**>(all), library_int(a.row_stride), info,
            library_int(a.count)),
        "cusolverDnXpotrfBatched");
  });
}

// Replaces B by X, for Lᵀ stored by columns.
void solve_triangular(CudaEngine& engine, Matrices b, ConstMatrices l) {
  with_real_type(b.dtype, [&]<class Real>(Real) {
    const Real* one = engine.push<Real>(1.0);
    const cublasHandle_t handle = engine.cublas();
    if (engine.dry("solve_triangular", b, l)) return;
    for (int64_t i = 0; i < b.count; ++i)
      check_cublas(
          of_type<Real>(cublasStrsm, cublasDtrsm)(
              handle, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_T,
              CUBLAS_DIAG_NON_UNIT, library_int(l.rows), library_int(b.rows),
              one, l.at(i).as<Real>(), library_int(l.row_stride),
              b.at(i).as<Real>(), library_int(b.row_stride)),
          "cublasXtrsm");
  });
}

}  // namespace canzona::linalg
