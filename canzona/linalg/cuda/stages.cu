// The element-wise stages (linalg/stages.h) of the CUDA engine.
#include "canzona/base/check.h"
#include "canzona/linalg/cuda/adam.cuh"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/exact.cuh"
#include "canzona/linalg/cuda/typed.h"

namespace canzona {
namespace {

// Whether runs may be read 16 bytes at a time; rounded copies, 8.
template <class... Pointers>
bool all_aligned(const Pointers*... pointers) {
  return (is_aligned(pointers, 16) && ...);
}

// Momentum, or, without kMomentum, the gradient handed on.
template <class Real, bool kL2, bool kMomentum, bool kOut>
struct Momentum {
  const Real* grad;
  const Real* weights;
  Real* momentum;
  Real* out;
  const Real* scalars;  // l2, keep, add, from_grad, from_momentum

  struct Worker {
    const Real* grad;
    const Real* weights;
    Real* momentum;
    Real* out;
    Real l2, keep, add_, from_grad, from_momentum;

    template <int V>
    __device__ void at(int64_t, int64_t j) const {
      auto g = load<V>(grad + j);
      if constexpr (kL2) {
        const auto p = load<V>(weights + j);
        for (int t = 0; t < V; ++t) g.x[t] = add(g.x[t], mul(l2, p.x[t]));
      }
      if constexpr (kMomentum) {
        auto b = load<V>(momentum + j);
        for (int t = 0; t < V; ++t)
          b.x[t] = add(mul(keep, b.x[t]), mul(add_, g.x[t]));
        store<V>(momentum + j, b);
        for (int t = 0; t < V; ++t)
          g.x[t] = add(mul(from_grad, g.x[t]), mul(from_momentum, b.x[t]));
      }
      if constexpr (kOut) store<V>(out + j, g);
    }
  };
  __device__ Worker of(int64_t) const {
    return {grad,       weights,    momentum,   out,       scalars[0],
            scalars[1], scalars[2], scalars[3], scalars[4]};
  }
};

template <class Real, bool kRounded, bool kCautious>
struct ApplyUpdate {
  Real* weights;
  const Real* update;
  uint16_t* rounded;
  const Real* scalars;  // keep_before, step, keep_after

  struct Worker {
    Real* weights;
    const Real* update;
    uint16_t* rounded;
    Applied<Real> apply;

    template <int V>
    __device__ void at(int64_t, int64_t j) const {
      auto p = load<V>(weights + j);
      const auto u = load<V>(update + j);
      for (int t = 0; t < V; ++t)
        p.x[t] = kCautious ? apply.cautiously(p.x[t], u.x[t])
                           : apply(p.x[t], u.x[t]);
      store<V>(weights + j, p);
      if constexpr (kRounded) store_rounded<V>(rounded + j, p);
    }
  };
  __device__ Worker of(int64_t) const {
    return {weights, update, rounded, Applied<Real>(scalars)};
  }
};

template <class Real, bool kMoment>
struct AdamQuotient {
  const Real* grad;
  Real* m;
  Real* v;
  Real* out;
  const Real* scalars;

  struct Worker {
    const Real* grad;
    Real* m;
    Real* v;
    Real* out;
    Adam<Real> adam;

    template <int V>
    __device__ void at(int64_t, int64_t j) const {
      store<V>(out + j, adam.template step<V, kMoment>(grad, m, v, j));
    }
  };
  __device__ Worker of(int64_t) const {
    return {grad, m, v, out, Adam<Real>(scalars)};
  }
};

template <class Real, bool kCautious>
void launch_apply(CudaEngine& engine, Real* weights, const Real* update,
                  uint16_t* rounded, const Real* scalars, int64_t count) {
  constexpr int V = kVector<Real>;
  const bool vectors = all_aligned(weights, update) && is_aligned(rounded, 8);
  if (rounded == nullptr)
    launch_elements<V>(
        engine, "apply",
        ApplyUpdate<Real, false, kCautious>{weights, update, nullptr, scalars},
        {1, count, 1}, vectors);
  else
    launch_elements<V>(
        engine, "apply",
        ApplyUpdate<Real, true, kCautious>{weights, update, rounded, scalars},
        {1, count, 1}, vectors);
}

template <class Real, bool kL2, bool kMomentum, bool kOut>
void launch_momentum(CudaEngine& engine, const Engine::MomentumStage& s,
                     const Real* scalars, int64_t count) {
  const Momentum<Real, kL2, kMomentum, kOut> work{
      elements<Real>(s.grad), elements<Real>(s.weights),
      elements<Real>(s.momentum), elements<Real>(s.out), scalars};
  launch_elements<kVector<Real>>(
      engine, "momentum", work, {1, count, 1},
      all_aligned(work.grad, kL2 ? work.weights : nullptr, work.momentum,
                  work.out));
}

template <class Real, bool kL2>
void launch_momentum_by_outputs(CudaEngine& engine,
                                const Engine::MomentumStage& s,
                                const Real* scalars, int64_t count) {
  if (s.momentum.data == nullptr)
    launch_momentum<Real, kL2, false, true>(engine, s, scalars, count);
  else if (s.out.data == nullptr)
    launch_momentum<Real, kL2, true, false>(engine, s, scalars, count);
  else
    launch_momentum<Real, kL2, true, true>(engine, s, scalars, count);
}

}  // namespace

void CudaEngine::momentum(const MomentumStage& s, int64_t count) {
  with_real_type(s.grad.dtype, [&]<class Real>(Real) {
    const bool l2 = static_cast<Real>(s.l2) != 0;
    const Real* scalars =
        push<Real>({s.l2, s.blend.keep, s.blend.add, s.blend.from_grad,
                    s.blend.from_momentum});
    if (dry("momentum", s.grad, s.weights, s.momentum, s.out, l2, count))
      return;
    if (l2)
      launch_momentum_by_outputs<Real, true>(*this, s, scalars, count);
    else
      launch_momentum_by_outputs<Real, false>(*this, s, scalars, count);
  });
}

void CudaEngine::apply(Run weights, ConstRun update, const Apply& apply,
                       int64_t count, uint16_t* rounded) {
  CANZONA_CHECK(rounded == nullptr || weights.dtype == DType::kFp32,
                "rounded copies are of fp32");
  with_real_type(weights.dtype, [&]<class Real>(Real) {
    const Real* scalars =
        push<Real>({apply.keep_before, apply.step, apply.keep_after});
    if (dry("apply", weights, update, rounded, apply.cautious, count)) return;
    Real* p = elements<Real>(weights);
    const Real* u = elements<Real>(update);
    if (apply.cautious)
      launch_apply<Real, true>(*this, p, u, rounded, scalars, count);
    else
      launch_apply<Real, false>(*this, p, u, rounded, scalars, count);
  });
}

void CudaEngine::adam(ConstRun grad, Run m, Run v, Run to,
                      const AdamCoefficients& adam, int64_t count) {
  with_real_type(grad.dtype, [&]<class Real>(Real) {
    constexpr int V = kVector<Real>;
    const Real* scalars = push<Real>(in_order(adam));
    if (dry("adam", grad, m, v, to, count)) return;
    const Real* g = elements<Real>(grad);
    Real *first = elements<Real>(m), *second = elements<Real>(v),
         *u = elements<Real>(to);
    const bool vectors = all_aligned(g, first, second, u);
    if (first == nullptr)
      launch_elements<V>(
          *this, "adam",
          AdamQuotient<Real, false>{g, first, second, u, scalars},
          {1, count, 1}, vectors);
    else
      launch_elements<V>(*this, "adam",
                         AdamQuotient<Real, true>{g, first, second, u, scalars},
                         {1, count, 1}, vectors);
  });
}

void CudaEngine::round_to_bf16(uint16_t* to, const float* from, int64_t count) {
  if (dry("round_to_bf16", to, from, count)) return;
  const RoundToBf16 work{to, from};
  launch_elements<4>(*this, "round_to_bf16", work, {1, count, 1},
                     work.allows_vectors());
}

}  // namespace canzona
