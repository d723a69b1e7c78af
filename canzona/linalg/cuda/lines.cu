// Norms and factors of lines on a GPU (linalg/lines.h). Sums within a block are
// added in an order that depends on the number of lines alone.
#include "canzona/linalg/lines.h"

#include <cfloat>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/kernels.h"
#include "canzona/linalg/cuda/launch.cuh"
#include "canzona/linalg/cuda/rows.cuh"

namespace canzona::linalg {
namespace {

template <int V, class Real>
__global__ void __launch_bounds__(kSumThreads)
    row_norms_kernel(Strided<Real> norms, Strided<const Real> a, Extent e) {
  for_rows(e, [&](int64_t k, int64_t i) {
    const Real* from = a.of(k) + i * a.row_stride;
    double sum = 0;
    for_row<V>(e.cols, [&]<int N>(Lot<N>, int64_t j) {
      const auto values = load<N>(from + j);
      for (int u = 0; u < N; ++u) {
        const double x = values.x[u];
        sum = add(sum, mul(x, x));
      }
    });
    sum = over_warp(sum);
    if (threadIdx.x % kWarp == 0) norms.of(k)[i] = static_cast<Real>(root(sum));
  });
}

template <class Real>
struct StoreColumnNorms {
  Strided<Real> norms;
  const double* sums;
  int64_t cols;

  template <int V>
  __device__ void at(int64_t k, int64_t j) const {
    static_assert(V == 1);
    norms.of(k)[j] = static_cast<Real>(root(sums[k * cols + j]));
  }
  __device__ StoreColumnNorms of(int64_t) const { return *this; }
};

template <class Real>
struct ScaleRows {
  Strided<Real> to;
  Strided<const Real> from;
  Strided<const Real> factors;

  struct Worker {
    Real* to;
    const Real* from;
    const Real* factors;
    int64_t to_stride, from_stride;
    template <int V>
    __device__ void at(int64_t i, int64_t j) const {
      auto out = load<V>(from + i * from_stride + j);
      const Real factor = factors[i];
      for (int t = 0; t < V; ++t) out.x[t] = mul(out.x[t], factor);
      store<V>(to + i * to_stride + j, out);
    }
  };
  __device__ Worker of(int64_t k) const {
    return {to.of(k), from.of(k), factors.of(k), to.row_stride,
            from.row_stride};
  }
};

// The scalars of LineFactors, as they are pushed.
enum Scalar { kTarget, kFloor, kKeep, kAdd, kLength, kEpsilon, kNumScalars };

// One block for each matrix.
template <class Real>
struct FactorsOfLines {
  using Kind = LineFactors::Kind;

  Strided<Real> factors;
  Strided<const Real> norms;
  Strided<Real> moments;
  Strided<const Real> other;
  int64_t lines;
  int64_t other_lines;  // 0: none
  const double* scalars;
  Kind kind;
  bool first, zero_below, clamp;

  struct Worker {
    FactorsOfLines all;
    Real* factors;
    const Real* norms;
    Real* moments;
    const Real* other;

    __device__ double scalar(Scalar which) const { return all.scalars[which]; }
    __device__ static double ratio(double a, double b) {
      return b == 0 ? 0 : quotient(a, b);
    }
    __device__ double norm(int64_t i) const {
      const double own = norms[i];
      return all.first ? own : mul(own, static_cast<double>(factors[i]));
    }
    // Every thread gets the root of the sum.
    template <class Term>
    __device__ double root_of_sum(int64_t count, const Term& term) const {
      double sum = 0;
      for (int64_t i = threadIdx.x; i < count; i += kSumThreads) {
        const double x = term(i);
        sum = add(sum, mul(x, x));
      }
      const double total = over_block(sum, Add{});
      __syncthreads();
      return root(total);
    }
    __device__ double total() const {
      return root_of_sum(all.lines, [&](int64_t i) { return norm(i); });
    }
    __device__ double total_of_other() const {
      return root_of_sum(all.other_lines, [&](int64_t i) {
        return static_cast<double>(other[i]);
      });
    }
    __device__ double divisor(double moment) const {
      const double epsilon = scalar(kEpsilon);
      return all.clamp ? root(fmax(moment, epsilon))
                       : add(root(moment), epsilon);
    }
    __device__ double move(Real& moment, double value) const {
      // Squares of finite numbers may leave the range; a moment never does.
      constexpr double kMost = sizeof(Real) == 4 ? 0x1.fffffep127 : DBL_MAX;
      moment = static_cast<Real>(
          fmin(add(mul(scalar(kKeep), static_cast<double>(moment)),
                   mul(scalar(kAdd), value)),
               kMost));
      return divisor(static_cast<double>(moment));
    }
    __device__ void multiply(int64_t i, double f) const {
      factors[i] = static_cast<Real>(
          all.first ? f : mul(static_cast<double>(factors[i]), f));
    }
    template <class Factor>
    __device__ void multiply_all(const Factor& factor) const {
      for (int64_t i = threadIdx.x; i < all.lines; i += kSumThreads)
        multiply(i, factor(i));
    }

    __device__ void even() const {
      const double each =
          quotient(total(), root(static_cast<double>(all.lines)));
      multiply_all([&](int64_t i) {
        return ratio(each, fmax(norm(i), scalar(kFloor)));
      });
    }
    __device__ void whole() const {
      const double own = total();
      const double target =
          all.other_lines > 0 ? total_of_other() : scalar(kTarget);
      const double floor = scalar(kFloor);
      const double f =
          all.zero_below && own < floor ? 0 : ratio(target, fmax(own, floor));
      multiply_all([&](int64_t) { return f; });
    }
    __device__ void by_moments() const {
      const double own = total();
      const double others = root_of_sum(all.lines, [&](int64_t i) {
        const double r = norm(i);
        return ratio(r, move(moments[i], quotient(mul(r, r), scalar(kLength))));
      });
      const double f = ratio(own, fmax(others, scalar(kFloor)));
      multiply_all([&](int64_t i) {
        return ratio(f, divisor(static_cast<double>(moments[i])));
      });
    }
    __device__ void by_moment() const {
      const double size = total_of_other();
      const double own = root_of_sum(
          all.lines, [&](int64_t i) { return static_cast<double>(norms[i]); });
      if (threadIdx.x == 0) move(moments[0], mul(size, size));
      __syncthreads();
      const double f = ratio(own, divisor(static_cast<double>(moments[0])));
      multiply_all([&](int64_t) { return f; });
    }
  };
  __device__ Worker of(int64_t k) const {
    return {*this, factors.of(k), norms.of(k),
            moments.data == nullptr ? nullptr : moments.of(k),
            other_lines == 0 ? nullptr : other.of(k)};
  }
};

template <class Real>
__global__ void __launch_bounds__(kSumThreads)
    line_factors_kernel(FactorsOfLines<Real> work, int64_t count) {
  for (int64_t k = blockIdx.x; k < count; k += gridDim.x) {
    const auto one = work.of(k);
    switch (work.kind) {
      case LineFactors::Kind::kEven:
        one.even();
        break;
      case LineFactors::Kind::kWhole:
        one.whole();
        break;
      case LineFactors::Kind::kMoments:
        one.by_moments();
        break;
      case LineFactors::Kind::kMoment:
        one.by_moment();
        break;
    }
  }
}

}  // namespace

void CudaEngine::line_norms(Matrices norms, ConstMatrices a, Lines lines) {
  const bool rows = lines == Lines::kRows;
  CANZONA_CHECK_EQ(norms.cols, rows ? a.rows : a.cols, "norms of lines");
  CANZONA_CHECK_EQ(norms.count, a.count, "matrices in a batch");
  Arena::Scope scope(arena());
  double* sums = nullptr;
  if (!rows) {
    sums = arena().take_array<double>(a.cols * a.count);
    column_sums_on_device(*this, sums, a, a);
  }
  if (dry("line_norms", norms, a, rows) || a.elements() * a.count == 0) return;
  with_real_type(a.dtype, [&]<class Real>(Real) {
    if (!rows)
      return launch_elements<1>(
          *this, "line_norms",
          StoreColumnNorms<Real>{strided<Real>(norms), sums, a.cols},
          {a.count, a.cols, 1}, false);
    const unsigned blocks = blocks_for_rows(*this, a.rows * a.count);
    constexpr int V = kVector<Real>;
    const auto launch = [&](auto kernel) {
      kernel<<<blocks, kSumThreads, 0, stream()>>>(
          strided<Real>(norms), strided<Real>(a), extent_of(a));
    };
    if (allows_vectors<V>(a))
      launch(row_norms_kernel<V, Real>);
    else
      launch(row_norms_kernel<1, Real>);
    check_launch("line_norms");
  });
}

void CudaEngine::line_factors(Matrices factors, ConstMatrices norms,
                              const LineFactors& how, Matrices moments,
                              ConstMatrices other) {
  CANZONA_CHECK_EQ(factors.cols, norms.cols, "factors of lines");
  CANZONA_CHECK_EQ(factors.count, norms.count, "matrices in a batch");
  const double* scalars = push<double>(
      {how.target, how.floor, how.keep, how.add, how.length, how.epsilon});
  if (dry("line_factors", factors, norms, moments, other,
          static_cast<int>(how.kind), how.first, how.zero_below, how.clamp) ||
      factors.count == 0)
    return;
  with_real_type(factors.dtype, [&]<class Real>(Real) {
    FactorsOfLines<Real> work;
    work.factors = strided<Real>(factors);
    work.norms = strided<Real>(norms);
    if (moments.data != nullptr) work.moments = strided<Real>(moments);
    if (other.data != nullptr) work.other = strided<Real>(other);
    work.lines = norms.cols;
    work.other_lines = other.data != nullptr ? other.cols : 0;
    work.scalars = scalars;
    work.kind = how.kind;
    work.first = how.first;
    work.zero_below = how.zero_below;
    work.clamp = how.clamp;
    line_factors_kernel<Real>
        <<<static_cast<unsigned>(std::min<int64_t>(factors.count, 65535)),
           kSumThreads, 0, stream()>>>(work, factors.count);
  });
  check_launch("line_factors");
}

void CudaEngine::scale_rows(Matrices to, ConstMatrices from,
                            ConstMatrices factors) {
  check_same_batch(to, from);
  CANZONA_CHECK_EQ(factors.cols, to.rows, "factors");
  CANZONA_CHECK_EQ(factors.count, to.count, "matrices in a batch");
  if (dry("scale_rows", to, from, factors)) return;
  with_real_type(to.dtype, [&]<class Real>(Real) {
    constexpr int V = kVector<Real>;
    launch_elements<V>(*this, "scale_rows",
                       ScaleRows<Real>{strided<Real>(to), strided<Real>(from),
                                       strided<Real>(factors)},
                       extent_of(to),
                       allows_vectors<V>(to) && allows_vectors<V>(from));
  });
}

}  // namespace canzona::linalg
