// Eigenvalues on a GPU: their order, and powers of them.
#include "canzona/base/check.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/exact.cuh"
#include "canzona/linalg/cuda/typed.h"

namespace canzona {
namespace {

constexpr int kThreads = 256;

// Integers in the order of the numbers; both zeros are the same. NaNs have
// their places, too, so that an order is always one.
__device__ int64_t sort_key(double value) {
  const int64_t bits = __double_as_longlong(add(value, 0.0));
  return bits >= 0 ? bits : bits ^ 0x7fffffffffffffffLL;
}

// The place of a value is the number of those before it.
template <class Real>
__global__ void __launch_bounds__(kThreads)
    sort_kernel(int64_t* orders, Strided<const Real> values, int64_t n,
                int64_t count, bool falling) {
  __shared__ int64_t keys[kThreads];
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Real* row = values.of(k);
    const int64_t key = i < n ? sort_key(row[i]) : 0;
    int64_t place = 0;
    for (int64_t begin = 0; begin < n; begin += kThreads) {
      __syncthreads();
      if (begin + threadIdx.x < n)
        keys[threadIdx.x] = sort_key(row[begin + threadIdx.x]);
      __syncthreads();
      const int64_t size = min(n - begin, int64_t{kThreads});
      for (int64_t j = 0; j < size; ++j) {
        const bool before = falling ? keys[j] > key : keys[j] < key;
        place += before || (keys[j] == key && begin + j < i) ? 1 : 0;
      }
    }
    if (i < n) orders[k * n + place] = i;
  }
}

// A block per matrix: all of it must know the smallest value before one is
// changed.
template <class Real>
__global__ void __launch_bounds__(kThreads)
    raise_kernel(Strided<Real> values, int64_t n, int64_t count,
                 const double* floors, bool shift, const double* exponent) {
  for (int64_t k = blockIdx.x; k < count; k += gridDim.x) {
    Real* row = values.of(k);
    const double floor = floors[k];
    const double power = *exponent;
    const double smallest = row[0];
    double lift = smallest < floor ? sub(floor, smallest) : 0;
    if (shift) lift = sub(floor, smallest < 0 ? smallest : 0);
    __syncthreads();
    for (int64_t j = threadIdx.x; j < n; j += kThreads)
      row[j] =
          static_cast<Real>(pow(add(static_cast<double>(row[j]), lift), power));
  }
}

template <class Real>
struct InverseRoots {
  Strided<Real> to;
  Strided<const Real> from;
  const double* scalars;  // scale, floor

  struct Worker {
    Real* to;
    const Real* from;
    double scale, floor;
    template <int V>
    __device__ void at(int64_t, int64_t j) const {
      const auto in = load<V>(from + j);
      Vector<Real, V> out;
      for (int t = 0; t < V; ++t) {
        const double value = in.x[t];
        const double raised = value < floor ? floor : value;
        out.x[t] = static_cast<Real>(quotient(1.0, root(mul(scale, raised))));
      }
      store<V>(to + j, out);
    }
  };
  __device__ Worker of(int64_t k) const {
    return {to.of(k), from.of(k), scalars[0], scalars[1]};
  }
};

}  // namespace

void CudaEngine::sort(Orders orders, ConstMatrices values, bool falling) {
  CANZONA_CHECK_EQ(orders.count, values.count, "orders");
  CANZONA_CHECK_EQ(orders.length, values.cols, "entries of an order");
  const int64_t n = values.cols;
  if (n == 0 || values.count == 0) return;
  if (dry("sort", orders.data, values, falling)) return;
  const dim3 grid(
      static_cast<unsigned>((n + kThreads - 1) / kThreads),
      static_cast<unsigned>(std::min<int64_t>(values.count, 65535)));
  with_real_type(values.dtype, [&]<class Real>(Real) {
    sort_kernel<Real><<<grid, kThreads, 0, stream()>>>(
        orders.data, strided<Real>(values), n, values.count, falling);
  });
  check_cuda(cudaGetLastError(), "sort");
}

void CudaEngine::raise_values(Matrices values, std::span<const double> floors,
                              bool shift, double exponent) {
  CANZONA_CHECK_EQ(floors.size(), values.count, "floors");
  const double* lowest = push<double>(floors);
  const double* power = push<double>(exponent);
  if (values.cols == 0 || values.count == 0) return;
  if (dry("raise_values", values, shift)) return;
  with_real_type(values.dtype, [&]<class Real>(Real) {
    raise_kernel<Real><<<static_cast<unsigned>(
                             std::min<int64_t>(values.count, int64_t{1} << 20)),
                         kThreads, 0, stream()>>>(
        strided<Real>(values), values.cols, values.count, lowest, shift, power);
  });
  check_cuda(cudaGetLastError(), "raise_values");
}

void CudaEngine::inverse_roots(Matrices to, ConstMatrices from, double scale,
                               double floor) {
  check_same_batch(to, from);
  const double* scalars = push<double>({scale, floor});
  if (dry("inverse_roots", to, from)) return;
  with_real_type(to.dtype, [&]<class Real>(Real) {
    constexpr int V = kVector<Real>;
    launch_elements<V>(
        *this, "inverse_roots",
        InverseRoots<Real>{strided<Real>(to), strided<Real>(from), scalars},
        {1, to.cols, to.count},
        allows_vectors<V>(to) && allows_vectors<V>(from));
  });
}

}  // namespace canzona
