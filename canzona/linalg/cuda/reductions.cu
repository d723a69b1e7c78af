// Reductions of matrices: Frobenius norms and scaling by them, largest
// magnitudes, traces, dots of columns.
#include "canzona/base/check.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/kernels.h"
#include "canzona/linalg/cuda/launch.cuh"

namespace canzona::linalg {
namespace {

// Squares of fp64 may leave its range; those of fp32 never do. Squares that
// vanished next to a sum within these bounds were too small to matter.
constexpr double kSmallest = 1e-280;
constexpr double kLargest = 1e300;

struct Squares {
  Add combine;
  struct Term {
    __device__ bool is_needed() const { return true; }
    template <class Real>
    __device__ double operator()(Real value) const {
      const double x = value;
      return mul(x, x);
    }
  };
  __device__ Term of(int64_t) const { return {}; }
};

struct StoreRoot {
  double* norms;
  __device__ void operator()(int64_t k, double sum) const {
    norms[k] = root(sum);
  }
};

// Marks norms that may be wrong, with a value that no norm can have.
constexpr double kToDo = -1;

struct StoreRootOrMark {
  double* norms;
  __device__ void operator()(int64_t k, double sum) const {
    norms[k] = sum > kSmallest && sum < kLargest ? root(sum) : kToDo;
  }
};

struct MarkedMagnitudes {
  const double* norms;
  Largest combine;
  struct Term {
    bool needed;
    __device__ bool is_needed() const { return needed; }
    __device__ uint64_t operator()(double value) const {
      return magnitude_bits(value);
    }
  };
  __device__ Term of(int64_t k) const { return {norms[k] == kToDo}; }
};

template <class Real>
struct StoreMagnitude {
  double* largest;
  __device__ void operator()(int64_t k, uint64_t bits) const {
    if constexpr (sizeof(Real) == sizeof(float))
      largest[k] = __uint_as_float(static_cast<uint32_t>(bits));
    else
      largest[k] = __longlong_as_double(static_cast<long long>(bits));
  }
};

// Returns the exponent of the power of two that brings `largest` near 1; both
// the power and its inverse are in range.
__device__ int exponent_for(double largest) {
  const int exponent = -ilogb(largest);
  return exponent < -1000 ? -1000 : exponent > 1000 ? 1000 : exponent;
}

struct ScaledSquares {
  const double* norms;
  const double* largest;
  Add combine;
  struct Term {
    bool needed;
    double factor;
    __device__ bool is_needed() const { return needed; }
    __device__ double operator()(double value) const {
      const double x = mul(value, factor);
      return mul(x, x);
    }
  };
  __device__ Term of(int64_t k) const {
    if (norms[k] != kToDo) return {false, 0};
    return {true, ldexp(1.0, exponent_for(largest[k]))};
  }
};

struct StoreScaledRoot {
  double* norms;
  const double* largest;
  __device__ void operator()(int64_t k, double sum) const {
    const double most = largest[k];
    norms[k] = most == 0 || !is_finite(most)
                   ? most
                   : mul(root(sum), ldexp(1.0, -exponent_for(most)));
  }
};

// Uses fp64, because the factor of a tiny matrix may be out of range.
template <class Real>
struct Scaling {
  Real* a;
  int64_t stride;
  double factor;
  bool is_needed;
  template <int V>
  __device__ void at(int64_t i, int64_t j) const {
    if (!is_needed) return;
    auto x = load<V>(a + i * stride + j);
    for (int t = 0; t < V; ++t)
      x.x[t] = static_cast<Real>(mul(static_cast<double>(x.x[t]), factor));
    store<V>(a + i * stride + j, x);
  }
};

template <class Real>
struct ScaleToNorm {
  Strided<Real> a;
  const double* own;
  const double* reference;
  const double* epsilon;

  // Without a norm there is nothing to scale, and no valid factor.
  __device__ Scaling<Real> of(int64_t k) const {
    const double norm = add(own[k], *epsilon);
    return {a.of(k), a.row_stride, quotient(reference[k], norm), norm != 0};
  }
};

template <class Real>
struct LimitNorm {
  Strided<Real> a;
  const double* own;
  const double* scalars;  // norm, epsilon

  __device__ Scaling<Real> of(int64_t k) const {
    const double norm = add(own[k], scalars[1]);
    return {a.of(k), a.row_stride, quotient(scalars[0], norm),
            norm > scalars[0]};
  }
};

}  // namespace

void norms_on_device(CudaEngine& engine, double* norms, ConstMatrices a) {
  Arena::Scope scope(engine.arena());
  const int64_t chunks = num_chunks(extent_of(a)) * a.count;
  auto* partial = engine.arena().take_array<double>(chunks);
  auto* bits = engine.arena().take_array<uint64_t>(chunks);
  auto* largest = engine.arena().take_array<double>(a.count);
  if (engine.dry("norms", a, norms, partial)) return;
  if (a.dtype == DType::kFp32) {
    reduce<double, float>(engine, partial, a, Squares{}, StoreRoot{norms});
    return;
  }
  reduce<double, double>(engine, partial, a, Squares{}, StoreRootOrMark{norms});
  reduce<uint64_t, double>(engine, bits, a, MarkedMagnitudes{norms, {}},
                           StoreMagnitude<double>{largest});
  reduce<double, double>(engine, partial, a, ScaledSquares{norms, largest, {}},
                         StoreScaledRoot{norms, largest});
}

void CudaEngine::norms(ConstMatrices a, std::span<double> results) {
  CANZONA_CHECK_EQ(results.size(), a.count, "norms");
  needs_results();
  if (a.count == 0) return;
  Arena::Scope scope(arena());
  auto* found = arena().take_array<double>(a.count);
  norms_on_device(*this, found, a);
  std::ranges::copy(this->results(found, a.count), results.begin());
}

void CudaEngine::scale_to_norm(Matrices a, ConstMatrices reference,
                               double epsilon) {
  CANZONA_CHECK_EQ(a.count, reference.count, "matrices in a batch");
  Arena::Scope scope(arena());
  auto* own = arena().take_array<double>(a.count);
  auto* wanted = arena().take_array<double>(a.count);
  norms_on_device(*this, own, a);
  norms_on_device(*this, wanted, reference);
  const double* added = push<double>(epsilon);
  if (dry("scale_to_norm", a)) return;
  with_real_type(a.dtype, [&]<class Real>(Real) {
    constexpr int V = kVector<Real>;
    flatten(a);
    launch_elements<V>(*this, "scale_to_norm",
                       ScaleToNorm<Real>{strided<Real>(a), own, wanted, added},
                       extent_of(a), allows_vectors<V>(a));
  });
}

void CudaEngine::limit_norms(Matrices a, double norm, double epsilon) {
  Arena::Scope scope(arena());
  auto* own = arena().take_array<double>(a.count);
  norms_on_device(*this, own, a);
  const double* scalars = push<double>({norm, epsilon});
  if (dry("limit_norms", a)) return;
  with_real_type(a.dtype, [&]<class Real>(Real) {
    constexpr int V = kVector<Real>;
    flatten(a);
    launch_elements<V>(*this, "limit_norms",
                       LimitNorm<Real>{strided<Real>(a), own, scalars},
                       extent_of(a), allows_vectors<V>(a));
  });
}

namespace {

struct Magnitudes {
  Largest combine;
  struct Term {
    __device__ bool is_needed() const { return true; }
    template <class Real>
    __device__ uint64_t operator()(Real value) const {
      return magnitude_bits(value);
    }
  };
  __device__ Term of(int64_t) const { return {}; }
};

// A second sum of smaller numbers catches intermediate overflow; what is not
// finite stays so in both.
constexpr double kDown = 0x1p-64;

template <class Real>
__global__ void __launch_bounds__(kSumThreads)
    traces_kernel(double* traces, Strided<const Real> a, Extent e) {
  const int64_t side = min(e.rows, e.cols);
  for (int64_t k = blockIdx.x; k < e.count; k += gridDim.x) {
    const Real* matrix = a.of(k);
    double sum = 0;
    double scaled = 0;
    for (int64_t i = threadIdx.x; i < side; i += kSumThreads) {
      const double value = matrix[i * a.row_stride + i];
      sum = add(sum, value);
      scaled = add(scaled, mul(value, kDown));
    }
    sum = over_block(sum, Add{});
    scaled = over_block(scaled, Add{});
    if (threadIdx.x == 0)
      traces[k] = is_finite(sum) ? sum : quotient(scaled, kDown);
  }
}

// Sums of a few columns over a range of rows: lanes take V neighbouring
// columns, warps take rows. A column's terms are added in one order, whatever V
// is.
constexpr int kLanes = 32;
constexpr int kWarps = 8;
constexpr int64_t kStretch = 512;

// kSquares: b is a, which is loaded once.
template <int V, bool kSquares, class Real>
__global__ void __launch_bounds__(kLanes* kWarps)
    column_sums_kernel(double* partial, Strided<const Real> a,
                       Strided<const Real> b, Extent e, int64_t stretches) {
  __shared__ double sums[kWarps][V][kLanes];
  const int64_t j = (int64_t{blockIdx.x} * kLanes + threadIdx.x) * V;
  const int64_t begin = blockIdx.y * kStretch;
  const int64_t end = min(begin + kStretch, e.rows);
  for (int64_t k = blockIdx.z; k < e.count; k += gridDim.z) {
    const Real* x = a.of(k) + j;
    const Real* y = b.of(k) + j;
    double sum[V] = {};
    if (j < e.cols) {
#pragma unroll 8
      for (int64_t i = begin + threadIdx.y; i < end; i += kWarps) {
        const auto own = load<V>(x + i * a.row_stride);
        const auto other = kSquares ? own : load<V>(y + i * b.row_stride);
        for (int t = 0; t < V; ++t)
          sum[t] = add(sum[t], mul(static_cast<double>(own.x[t]),
                                   static_cast<double>(other.x[t])));
      }
    }
    for (int t = 0; t < V; ++t) sums[threadIdx.y][t][threadIdx.x] = sum[t];
    __syncthreads();
    if (threadIdx.y == 0 && j < e.cols)
      for (int t = 0; t < V; ++t) {
        for (int w = 1; w < kWarps; ++w)
          sum[t] = add(sum[t], sums[w][t][threadIdx.x]);
        partial[(k * stretches + blockIdx.y) * e.cols + j + t] = sum[t];
      }
    __syncthreads();
  }
}

struct AddStretches {
  double* sums;
  const double* partial;
  int64_t stretches;
  int64_t cols;

  template <int V>
  __device__ void at(int64_t k, int64_t j) const {
    static_assert(V == 1);
    double sum = 0;
    for (int64_t s = 0; s < stretches; ++s)
      sum = add(sum, partial[(k * stretches + s) * cols + j]);
    sums[k * cols + j] = sum;
  }
  __device__ AddStretches of(int64_t) const { return *this; }
};

template <class Real>
struct StoreColumns {
  Strided<Real> values;
  const double* sums;
  int64_t cols;

  template <int V>
  __device__ void at(int64_t k, int64_t j) const {
    static_assert(V == 1);
    values.of(k)[j] = static_cast<Real>(sums[k * cols + j]);
  }
  __device__ StoreColumns of(int64_t) const { return *this; }
};

}  // namespace

void CudaEngine::max_abs(ConstMatrices a, std::span<double> results) {
  CANZONA_CHECK_EQ(results.size(), a.count, "largest magnitudes");
  needs_results();
  if (a.count == 0) return;
  Arena::Scope scope(arena());
  auto* found = arena().take_array<double>(a.count);
  auto* partial =
      arena().take_array<uint64_t>(num_chunks(extent_of(a)) * a.count);
  with_real_type(a.dtype, [&]<class Real>(Real) {
    reduce<uint64_t, Real>(*this, partial, a, Magnitudes{},
                           StoreMagnitude<Real>{found});
  });
  std::ranges::copy(this->results(found, a.count), results.begin());
}

void CudaEngine::traces(ConstMatrices a, std::span<double> results) {
  CANZONA_CHECK_EQ(results.size(), a.count, "traces");
  needs_results();
  if (a.count == 0) return;
  Arena::Scope scope(arena());
  auto* found = arena().take_array<double>(a.count);
  with_real_type(a.dtype, [&]<class Real>(Real) {
    traces_kernel<Real>
        <<<static_cast<unsigned>(std::min<int64_t>(a.count, int64_t{1} << 20)),
           kSumThreads, 0, stream()>>>(found, strided<Real>(a), extent_of(a));
  });
  check_cuda(cudaGetLastError(), "traces");
  std::ranges::copy(this->results(found, a.count), results.begin());
}

void CudaEngine::column_dots(Matrices values, ConstMatrices a,
                             ConstMatrices b) {
  check_same_batch(a, b);
  CANZONA_CHECK_EQ(values.cols, a.cols, "columns");
  CANZONA_CHECK_EQ(values.count, a.count, "matrices in a batch");
  Arena::Scope scope(arena());
  auto* sums = arena().take_array<double>(a.cols * a.count);
  column_sums_on_device(*this, sums, a, b);
  if (dry("column_dots", values)) return;
  with_real_type(a.dtype, [&]<class Real>(Real) {
    launch_elements<1>(*this, "column_dots",
                       StoreColumns<Real>{strided<Real>(values), sums, a.cols},
                       {a.count, a.cols, 1}, false);
  });
}

void column_sums_on_device(CudaEngine& engine, double* sums, ConstMatrices a,
                           ConstMatrices b) {
  Arena::Scope scope(engine.arena());
  const int64_t stretches =
      std::max<int64_t>((a.rows + kStretch - 1) / kStretch, 1);
  auto* partial =
      engine.arena().take_array<double>(a.count * stretches * a.cols);
  CANZONA_CHECK(stretches <= 65535, a.rows, " rows to sum over");
  if (engine.dry("column_sums", a, b, sums, partial)) return;
  if (a.count == 0 || a.cols == 0) return;
  with_real_type(a.dtype, [&]<class Real>(Real) {
    const auto launch = [&]<int V>(std::integral_constant<int, V>) {
      const int64_t width = int64_t{kLanes} * V;
      const dim3 grid(static_cast<unsigned>((a.cols + width - 1) / width),
                      static_cast<unsigned>(stretches),
                      static_cast<unsigned>(std::min<int64_t>(a.count, 65535)));
      const auto kernel = a.data == b.data ? column_sums_kernel<V, true, Real>
                                           : column_sums_kernel<V, false, Real>;
      kernel<<<grid, dim3(kLanes, kWarps), 0, engine.stream()>>>(
          partial, strided<Real>(a), strided<Real>(b), extent_of(a), stretches);
    };
    constexpr int V = kVector<Real>;
    if (a.cols % V == 0 && allows_vectors<V>(a) && allows_vectors<V>(b))
      launch(std::integral_constant<int, V>{});
    else
      launch(std::integral_constant<int, 1>{});
  });
  check_cuda(cudaGetLastError(), "column_sums");
  launch_elements<1>(engine, "column_sums",
                     AddStretches{sums, partial, stretches, a.cols},
                     {a.count, a.cols, 1}, false);
}

}  // namespace canzona::linalg
