// Frobenius norms, and what is scaled by them.
#include "canzona/linalg/cuda/kernels.h"

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/exact.cuh"
#include "canzona/linalg/cuda/slots.cuh"
#include "canzona/linalg/cuda/typed.h"

namespace canzona {
namespace {

// Squares of fp64 may leave its range, those of fp32 never do. Squares that
// vanished beside a sum within these bounds were too small to matter.
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

// Of norms that may be wrong: marked by what no norm can be.
constexpr double kToDo = -1;

struct StoreRootOrMark {
  double* norms;
  __device__ void operator()(int64_t k, double sum) const {
    norms[k] = sum > kSmallest && sum < kLargest ? root(sum) : kToDo;
  }
};

struct Magnitudes {
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

struct StoreMagnitude {
  double* largest;
  __device__ void operator()(int64_t k, uint64_t bits) const {
    largest[k] = __longlong_as_double(static_cast<long long>(bits));
  }
};

// The power of two that brings `largest` near 1; both it and its inverse are
// in range.
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

// In fp64, since the factor of a tiny matrix may be out of range.
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

  // Without a norm there is nothing to scale, and no factor for it.
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
  const int64_t slots = num_slots(extent_of(a)) * a.count;
  auto* partial = engine.arena().take_array<double>(slots);
  auto* bits = engine.arena().take_array<uint64_t>(slots);
  auto* largest = engine.arena().take_array<double>(a.count);
  if (engine.dry("norms", a, norms, partial)) return;
  if (a.dtype == DType::kFp32) {
    reduce<double, float>(engine, partial, a, Squares{}, StoreRoot{norms});
    return;
  }
  reduce<double, double>(engine, partial, a, Squares{}, StoreRootOrMark{norms});
  reduce<uint64_t, double>(engine, bits, a, Magnitudes{norms, {}},
                           StoreMagnitude{largest});
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

}  // namespace canzona
