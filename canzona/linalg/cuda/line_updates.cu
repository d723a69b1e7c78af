// Weights that move by an update with factors of lines (linalg/lines.h) on a
// GPU: what the stages do in several passes, element by element the same.
#include <type_traits>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/algebra/algebra.h"
#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/kernels.h"
#include "canzona/linalg/cuda/launch.cuh"
#include "canzona/linalg/cuda/rows.cuh"
#include "canzona/linalg/lines.h"

namespace canzona::linalg {
namespace {

template <int V, class Real>
__global__ void __launch_bounds__(kSumThreads)
    row_sums_kernel(Strided<Real> update_norms, Strided<Real> weight_norms,
                    Strided<Real> dots, Strided<const Real> update,
                    const Real* const* weights, Extent e) {
  for_rows(e, [&](int64_t k, int64_t i) {
    const Real* o = update.of(k) + i * e.cols;
    const Real* p = weights[k] + i * e.cols;
    double oo = 0, pp = 0, op = 0;
    for_row<V>(e.cols, [&]<int N>(Lot<N>, int64_t j) {
      const auto updates = load<N>(o + j);
      const auto values = load<N>(p + j);
      for (int u = 0; u < N; ++u) {
        const double x = updates.x[u], y = values.x[u];
        oo = add(oo, mul(x, x));
        pp = add(pp, mul(y, y));
        op = add(op, mul(x, y));
      }
    });
    oo = over_warp(oo);
    pp = over_warp(pp);
    op = over_warp(op);
    if (threadIdx.x % kWarp != 0) return;
    update_norms.of(k)[i] = static_cast<Real>(root(oo));
    weight_norms.of(k)[i] = static_cast<Real>(root(pp));
    dots.of(k)[i] = static_cast<Real>(op);
  });
}

template <class Real>
struct MovedRows {
  Strided<Real> to;
  Strided<Real> update_norms, weight_norms, dots;
  Strided<const Real> factors;
  int64_t rows;
  const double* scalars;  // keep, step, target, floor
};

// A block for each matrix.
template <class Real>
__global__ void __launch_bounds__(kSumThreads)
    moved_factors_kernel(MovedRows<Real> work, int64_t count) {
  const double keep = work.scalars[0], step = work.scalars[1];
  const double target = work.scalars[2], floor = work.scalars[3];
  for (int64_t k = blockIdx.x; k < count; k += gridDim.x) {
    double moved = 0, before = 0;
    for (int64_t i = threadIdx.x; i < work.rows; i += kSumThreads) {
      const double p = work.weight_norms.of(k)[i];
      const double s = mul(step, static_cast<double>(work.factors.of(k)[i]));
      const double a = mul(keep, p);
      const double b = mul(s, static_cast<double>(work.update_norms.of(k)[i]));
      const double inner =
          mul(mul(mul(2.0, keep), s), static_cast<double>(work.dots.of(k)[i]));
      moved = add(moved, add(sub(mul(a, a), inner), mul(b, b)));
      before = add(before, mul(p, p));
    }
    const double all_moved = over_block(moved, Add{});
    __syncthreads();
    const double all_before = over_block(before, Add{});
    __syncthreads();
    const double norm = root(fmax(all_moved, 0.0));
    const double wanted = target == 0 ? root(all_before) : target;
    const double larger = fmax(norm, floor);
    const double g = norm < floor || larger == 0 ? 0 : quotient(wanted, larger);
    for (int64_t i = threadIdx.x; i < work.rows; i += kSumThreads)
      work.to.of(k)[i] = static_cast<Real>(g);
  }
}

// kPull: weights are pulled back by the lengths. kStore: what they lose takes
// the place of the update instead of moving them.
template <class Real, bool kPull, bool kStore, bool kCautious>
struct MoveByLines {
  using Weight = std::conditional_t<kStore, const Real, Real>;
  Weight* const* weights;
  Strided<Real> update;
  Strided<const Real> factors;
  Strided<const Real> lengths;
  uint16_t* const* rounded;  // or null
  const Real* scalars;       // keep_before, step, keep_after
  int64_t cols;
  bool by_rows;

  struct Worker {
    Weight* weights;
    Real* update;
    const Real* factors;
    const Real* lengths;
    uint16_t* rounded;
    Real keep_before, step, keep_after;
    int64_t cols;
    bool by_rows;

    __device__ Real moved(Real p, Real u) const {
      const Real keep = kCautious && mul(p, u) < 0 ? Real{1} : keep_before;
      return mul(sub(mul(p, keep), mul(step, u)), keep_after);
    }
    template <int V>
    __device__ void at(int64_t i, int64_t j) const {
      const int64_t place = i * cols + j;
      auto p = load<V>(weights + place);
      auto o = load<V>(update + place);
      for (int t = 0; t < V; ++t) {
        const Real u = mul(o.x[t], by_rows ? factors[i] : factors[j + t]);
        Real next = moved(p.x[t], u);
        if constexpr (kPull) {
          o.x[t] = sub(p.x[t], mul(next, lengths[i]));
          next = sub(p.x[t], o.x[t]);
        }
        p.x[t] = next;
      }
      if constexpr (kStore) {
        store<V>(update + place, o);
      } else {
        store<V>(weights + place, p);
        if constexpr (sizeof(Real) == 4)
          if (rounded != nullptr) store_weights<V>(rounded + place, p);
      }
    }
  };
  __device__ Worker of(int64_t k) const {
    return {weights[k],
            update.of(k),
            factors.of(k),
            kPull ? lengths.of(k) : nullptr,
            rounded == nullptr ? nullptr : rounded[k],
            scalars[0],
            scalars[1],
            scalars[2],
            cols,
            by_rows};
  }
};

void check_lines(const ConstMatrices& weights, const LineUpdate& how) {
  CANZONA_CHECK(weights.rows == how.update.rows &&
                    weights.cols == how.update.cols &&
                    weights.count == how.update.count && weights.contiguous() &&
                    how.update.contiguous(),
                "weights and updates of another shape");
  CANZONA_CHECK_EQ(
      how.factors.cols,
      how.lines == Lines::kRows ? how.update.rows : how.update.cols, "factors");
}

template <class Real>
bool allows_vectors_of(const ConstMatrices& weights,
                       const ConstMatrices& update) {
  if (update.cols % kVector<Real> != 0 ||
      !allows_vectors<kVector<Real>>(update))
    return false;
  for (int64_t k = 0; k < weights.count; ++k)
    if (!is_aligned(weights.at(k).data, 16)) return false;
  return true;
}

template <class Real>
bool moves_in_vectors(const ConstMatrices& weights, const LineUpdate& how,
                      uint16_t* const* rounded) {
  if (!allows_vectors_of<Real>(weights, how.update)) return false;
  if (rounded != nullptr)
    for (int64_t k = 0; k < weights.count; ++k)
      if (!is_aligned(rounded[k], 8)) return false;
  return true;
}

template <class Real, bool kPull, bool kStore, class Weights>
void launch_move(CudaEngine& engine, const Weights& weights,
                 const LineUpdate& how, uint16_t* const* rounded) {
  check_lines(weights, how);
  const auto launch = [&]<bool kCautious>(std::bool_constant<kCautious>) {
    using Work = MoveByLines<Real, kPull, kStore, kCautious>;
    Work work{};
    work.weights = device_places<typename Work::Weight>(engine, weights);
    work.update = strided<Real>(how.update);
    work.factors = strided<Real>(how.factors);
    if (kPull) work.lengths = strided<Real>(how.lengths);
    if (rounded != nullptr)
      work.rounded = engine.table(std::span<uint16_t* const>(
          rounded, static_cast<size_t>(weights.count)));
    work.scalars = engine.push<Real>(
        {how.apply.keep_before, how.apply.step, how.apply.keep_after});
    work.cols = how.update.cols;
    work.by_rows = how.lines == Lines::kRows;
    const bool vectors = moves_in_vectors<Real>(weights, how, rounded);
    if (engine.dry("move_by_lines", how.update, how.factors, how.lengths,
                   work.by_rows, rounded != nullptr, vectors, kPull, kStore,
                   kCautious))
      return;
    launch_elements<kVector<Real>>(engine, "move_by_lines", work,
                                   extent_of(how.update), vectors);
  };
  if (how.apply.cautious)
    launch(std::true_type{});
  else
    launch(std::false_type{});
}

}  // namespace

void CudaEngine::apply_lines(Matrices weights, const LineUpdate& how,
                             uint16_t* const* rounded) {
  with_real_type(how.update.dtype, [&]<class Real>(Real) {
    if (how.lengths.data != nullptr)
      launch_move<Real, true, false>(*this, weights, how, rounded);
    else
      launch_move<Real, false, false>(*this, weights, how, rounded);
  });
}

void CudaEngine::project_lines(ConstMatrices weights, const LineUpdate& how) {
  with_real_type(how.update.dtype, [&]<class Real>(Real) {
    launch_move<Real, true, true>(*this, weights, how, nullptr);
  });
}

void CudaEngine::row_sums(const RowSums& sums, ConstMatrices update,
                          ConstMatrices weights) {
  CANZONA_CHECK(update.contiguous() && weights.contiguous(), "rows with gaps");
  CANZONA_CHECK_EQ(update.count, weights.count, "matrices in a batch");
  with_real_type(update.dtype, [&]<class Real>(Real) {
    const Real* const* places = device_places<const Real>(*this, weights);
    const bool vectors = allows_vectors_of<Real>(weights, update);
    if (dry("row_sums", sums.update, sums.weights, sums.dots, update,
            vectors) ||
        update.elements() * update.count == 0)
      return;
    const auto kernel = vectors ? row_sums_kernel<kVector<Real>, Real>
                                : row_sums_kernel<1, Real>;
    kernel<<<blocks_for_rows(*this, update.rows * update.count), kSumThreads, 0,
             stream()>>>(strided<Real>(sums.update),
                         strided<Real>(sums.weights), strided<Real>(sums.dots),
                         strided<Real>(update), places, extent_of(update));
    check_launch("row_sums");
  });
}

void CudaEngine::moved_factors(Matrices to, const RowSums& sums,
                               ConstMatrices factors, const Apply& apply,
                               double target, double floor) {
  const double* scalars =
      push<double>({apply.keep_before * apply.keep_after,
                    apply.step * apply.keep_after, target, floor});
  if (dry("moved_factors", to, sums.update, sums.weights, sums.dots, factors) ||
      to.count == 0)
    return;
  with_real_type(to.dtype, [&]<class Real>(Real) {
    moved_factors_kernel<Real>
        <<<static_cast<unsigned>(std::min<int64_t>(to.count, 65535)),
           kSumThreads, 0, stream()>>>(
            {strided<Real>(to), strided<Real>(sums.update),
             strided<Real>(sums.weights), strided<Real>(sums.dots),
             strided<Real>(factors), to.cols, scalars},
            to.count);
  });
  check_launch("moved_factors");
}

}  // namespace canzona::linalg
