#include "canzona/linalg/cuda/kernels.h"

#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/launch.cuh"

namespace canzona::linalg {
namespace {

// Works on the columns of all matrices: row k of the extent is matrix k.
template <class Step>
struct OnColumns {
  CholeskyQrState s;
  Step step;

  template <int V>
  __device__ void at(int64_t k, int64_t j) const {
    static_assert(V == 1);
    step(s, k, j);
  }
  __device__ OnColumns of(int64_t) const { return *this; }
};

template <class Step>
void launch_on_columns(CudaEngine& engine, const char* name,
                       const CholeskyQrState& s, const Step& step) {
  launch_elements<1>(engine, name, OnColumns<Step>{s, step},
                     {s.count, s.cols, 1}, false);
}

struct Begin {
  __device__ void operator()(const CholeskyQrState& s, int64_t k,
                             int64_t j) const {
    s.distances[k * s.cols + j] = 1;
    if (j == 0) s.hopeless[k] = 0;
  }
};

struct TakeLength {
  const double* squares;
  bool follow;
  __device__ void operator()(const CholeskyQrState& s, int64_t k,
                             int64_t j) const {
    const int64_t at = k * s.cols + j;
    const double length = root(squares[at]);
    s.lengths[at] = length;
    if (follow) s.distances[at] = mul(s.distances[at], length);
    if (!(length > 0) || !is_finite(length)) s.hopeless[k] = 1;
  }
};

template <class Real>
struct TakeFactor {
  const int32_t* info;
  Strided<const Real> factor;
  __device__ void operator()(const CholeskyQrState& s, int64_t k,
                             int64_t j) const {
    const double diagonal = factor.of(k)[j * factor.row_stride + j];
    double& distance = s.distances[k * s.cols + j];
    distance = mul(distance, diagonal);
    if (j == 0 && info[k] != 0) s.hopeless[k] = 1;
  }
};

struct GiveUp {
  const int32_t* far;
  __device__ void operator()(const CholeskyQrState& s, int64_t k,
                             int64_t j) const {
    if (j == 0 && far[k] != 0) s.hopeless[k] = 1;
  }
};

struct RequireDistance {
  double noise;
  __device__ void operator()(const CholeskyQrState& s, int64_t k,
                             int64_t j) const {
    if (!(s.distances[k * s.cols + j] > noise)) s.hopeless[k] = 1;
  }
};

template <class Real>
struct Normalise {
  Strided<Real> a;
  const double* lengths;
  int64_t cols;

  struct Worker {
    Real* a;
    int64_t stride;
    const double* lengths;
    template <int V>
    __device__ void at(int64_t i, int64_t j) const {
      auto x = load<V>(a + i * stride + j);
      for (int t = 0; t < V; ++t)
        x.x[t] = static_cast<Real>(
            quotient(static_cast<double>(x.x[t]), lengths[j + t]));
      store<V>(a + i * stride + j, x);
    }
  };
  __device__ Worker of(int64_t k) const {
    return {a.of(k), a.row_stride, lengths + k * cols};
  }
};

struct Magnitudes {
  Largest combine;
  struct Term {
    __device__ bool is_needed() const { return true; }
    __device__ uint64_t operator()(double value) const {
      return magnitude_bits(value);
    }
  };
  __device__ Term of(int64_t) const { return {}; }
};

struct StoreExponent {
  int32_t* exponents;
  int32_t* hopeless;
  __device__ void operator()(int64_t k, uint64_t bits) const {
    const double largest = __longlong_as_double(static_cast<long long>(bits));
    const bool usable = largest > 0 && is_finite(largest);
    if (!usable) hopeless[k] = 1;
    const bool moderate = largest < 1e100 && largest > 1e-100;
    exponents[k] = usable && !moderate ? -ilogb(largest) : 0;
  }
};

struct Shift {
  Strided<double> a;
  const int32_t* exponents;

  struct Worker {
    double* a;
    int64_t stride;
    int exponent;
    template <int V>
    __device__ void at(int64_t i, int64_t j) const {
      static_assert(V == 1);
      if (exponent == 0) return;
      double& x = a[i * stride + j];
      x = ldexp(x, exponent);
    }
  };
  __device__ Worker of(int64_t k) const {
    return {a.of(k), a.row_stride, exponents[k]};
  }
};

// Sums off-diagonal squares, with rows distributed over this many blocks.
constexpr int kBlocks = 32;

template <class Real>
__global__ void __launch_bounds__(kSumThreads)
    off_diagonal_kernel(double* partial, Strided<const Real> gram, int64_t n,
                        int64_t count) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    double sum = 0;
    for (int64_t i = blockIdx.x; i < n; i += kBlocks)
      for (int64_t j = threadIdx.x; j < i; j += kSumThreads) {
        const double value = gram.of(k)[i * gram.row_stride + j];
        sum = add(sum, mul(mul(2.0, value), value));
      }
    sum = over_block(sum, Add{});
    if (threadIdx.x == 0) partial[k * kBlocks + blockIdx.x] = sum;
  }
}

constexpr double kNear = 0.25;

__global__ void far_kernel(int32_t* far, const double* partial, int64_t count) {
  for (int64_t k = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; k < count;
       k += int64_t{gridDim.x} * blockDim.x) {
    double sum = 0;
    for (int b = 0; b < kBlocks; ++b) sum = add(sum, partial[k * kBlocks + b]);
    far[k] = sum < kNear * kNear ? 0 : 1;
  }
}

}  // namespace

void launch_begin(CudaEngine& engine, const CholeskyQrState& state) {
  launch_on_columns(engine, "begin", state, Begin{});
}

void launch_bring_into_range(CudaEngine& engine, const CholeskyQrState& state,
                             Matrices a) {
  if (a.dtype != DType::kFp64) return;
  Arena::Scope scope(engine.arena());
  auto* partial =
      engine.arena().take_array<uint64_t>(num_chunks(extent_of(a)) * a.count);
  auto* exponents = engine.arena().take_array<int32_t>(a.count);
  reduce<uint64_t, double>(engine, partial, a, Magnitudes{},
                           StoreExponent{exponents, state.hopeless});
  launch_elements<1>(engine, "bring_into_range",
                     Shift{strided<double>(a), exponents}, extent_of(a), false);
}

void launch_take_lengths(CudaEngine& engine, const CholeskyQrState& state,
                         const double* squares, bool follow) {
  launch_on_columns(engine, "take_lengths", state, TakeLength{squares, follow});
}

void launch_normalise(CudaEngine& engine, const CholeskyQrState& state,
                      Matrices a) {
  with_real_type(a.dtype, [&]<class Real>(Real) {
    constexpr int V = kVector<Real>;
    launch_elements<V>(
        engine, "normalise",
        Normalise<Real>{strided<Real>(a), state.lengths, state.cols},
        extent_of(a), allows_vectors<V>(a));
  });
}

void launch_find_far(CudaEngine& engine, int32_t* far, ConstMatrices gram) {
  Arena::Scope scope(engine.arena());
  auto* partial = engine.arena().take_array<double>(gram.count * kBlocks);
  const dim3 grid(kBlocks,
                  static_cast<unsigned>(std::min<int64_t>(gram.count, 65535)));
  with_real_type(gram.dtype, [&]<class Real>(Real) {
    off_diagonal_kernel<Real><<<grid, kSumThreads, 0, engine.stream()>>>(
        partial, strided<Real>(gram), gram.rows, gram.count);
  });
  far_kernel<<<static_cast<unsigned>((gram.count + 255) / 256), 256, 0,
               engine.stream()>>>(far, partial, gram.count);
  check_cuda(cudaGetLastError(), "find_far");
}

void launch_give_up(CudaEngine& engine, const CholeskyQrState& state,
                    const int32_t* far) {
  launch_on_columns(engine, "give_up", state, GiveUp{far});
}

void launch_take_factor(CudaEngine& engine, const CholeskyQrState& state,
                        const int32_t* info, ConstMatrices factor) {
  with_real_type(factor.dtype, [&]<class Real>(Real) {
    launch_on_columns(engine, "take_factor", state,
                      TakeFactor<Real>{info, strided<Real>(factor)});
  });
}

void launch_require_distance(CudaEngine& engine, const CholeskyQrState& state,
                             double noise) {
  launch_on_columns(engine, "require_distance", state, RequireDistance{noise});
}

}  // namespace canzona::linalg
