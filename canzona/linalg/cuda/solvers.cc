#include "canzona/linalg/cuda/kernels.h"

#include <limits>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/libraries.h"
#include "canzona/linalg/cuda/typed.h"

namespace canzona {
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
cusolverStatus_t potrf_batched(cusolverDnHandle_t handle, int n, float** a,
                               int stride, int* info, int count) {
  return cusolverDnSpotrfBatched(handle, CUBLAS_FILL_MODE_UPPER, n, a, stride,
                                 info, count);
}
cusolverStatus_t potrf_batched(cusolverDnHandle_t handle, int n, double** a,
                               int stride, int* info, int count) {
  return cusolverDnDpotrfBatched(handle, CUBLAS_FILL_MODE_UPPER, n, a, stride,
                                 info, count);
}

cusolverStatus_t orgqr_size(cusolverDnHandle_t handle, int m, int n,
                            const float* a, int stride, const float* tau,
                            int* size) {
  return cusolverDnSorgqr_bufferSize(handle, m, n, n, a, stride, tau, size);
}
cusolverStatus_t orgqr_size(cusolverDnHandle_t handle, int m, int n,
                            const double* a, int stride, const double* tau,
                            int* size) {
  return cusolverDnDorgqr_bufferSize(handle, m, n, n, a, stride, tau, size);
}
cusolverStatus_t orgqr(cusolverDnHandle_t handle, int m, int n, float* a,
                       int stride, const float* tau, float* work, int size,
                       int* info) {
  return cusolverDnSorgqr(handle, m, n, n, a, stride, tau, work, size, info);
}
cusolverStatus_t orgqr(cusolverDnHandle_t handle, int m, int n, double* a,
                       int stride, const double* tau, double* work, int size,
                       int* info) {
  return cusolverDnDorgqr(handle, m, n, n, a, stride, tau, work, size, info);
}

// Replaces B by X, for Lᵀ stored by columns.
struct Trsm {
  cublasHandle_t handle;
  int m, n, a_stride, b_stride;

  cublasStatus_t one(const float* alpha, const float* a, float* b) const {
    return cublasStrsm(handle, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_UPPER,
                       CUBLAS_OP_T, CUBLAS_DIAG_NON_UNIT, m, n, alpha, a,
                       a_stride, b, b_stride);
  }
  cublasStatus_t one(const double* alpha, const double* a, double* b) const {
    return cublasDtrsm(handle, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_UPPER,
                       CUBLAS_OP_T, CUBLAS_DIAG_NON_UNIT, m, n, alpha, a,
                       a_stride, b, b_stride);
  }
};

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
  check_cusolver(orgqr_size(handle, m, n, a.as<Real>(), stride, tau, &size),
                 "cusolverDnXorgqr_bufferSize");
  Real* work = engine.arena().take_array<Real>(size);
  check_cusolver(
      orgqr(handle, m, n, a.as<Real>(), stride, tau, work, size, info),
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
        potrf_batched(engine.cusolver(), library_int(a.rows),
                      const_cast<Real**>(all), library_int(a.row_stride), info,
                      library_int(a.count)),
        "cusolverDnXpotrfBatched");
  });
}

void solve_triangular(CudaEngine& engine, Matrices b, ConstMatrices l) {
  with_real_type(b.dtype, [&]<class Real>(Real) {
    const Real* one = engine.push<Real>(1.0);
    const Trsm trsm{engine.cublas(), library_int(l.rows), library_int(b.rows),
                    library_int(l.row_stride), library_int(b.row_stride)};
    if (engine.dry("solve_triangular", b, l)) return;
    for (int64_t i = 0; i < b.count; ++i)
      check_cublas(trsm.one(one, l.at(i).as<Real>(), b.at(i).as<Real>()),
                   "cublasXtrsm");
  });
}

}  // namespace canzona
