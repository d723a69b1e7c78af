// The fused element-wise stages (stages.h), including Adam.
#include <algorithm>
#include <array>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/kernels.h"
#include "canzona/linalg/cuda/launch.cuh"
#include "canzona/linalg/stages.h"

namespace canzona::linalg {
namespace {

// The arithmetic of Adam and of applying an update, for one tensor and for
// many.

// p = (p·keep_before - step·u)·keep_after
template <class Real>
struct Applied {
  Real keep_before, step, keep_after;

  __device__ explicit Applied(const Real* scalars)
      : keep_before(scalars[0]), step(scalars[1]), keep_after(scalars[2]) {}
  __device__ Real operator()(Real p, Real u) const {
    return mul(sub(mul(p, keep_before), mul(step, u)), keep_after);
  }
  __device__ Real cautiously(Real p, Real u) const {
    const Real keep = mul(p, u) < 0 ? Real{1} : keep_before;
    return mul(sub(mul(p, keep), mul(step, u)), keep_after);
  }
};

// Returns the coefficients in the order that kernels expect.
std::array<double, 8> in_order(const AdamCoefficients& a) {
  return {a.m_keep,      a.m_add,     a.v_keep,     a.v_add,
          a.from_moment, a.from_grad, a.root_scale, a.epsilon};
}

template <class Real>
struct Adam {
  Real m_keep, m_add, v_keep, v_add, from_moment, from_grad, root_scale,
      epsilon;

  __device__ explicit Adam(const Real* s)
      : m_keep(s[0]),
        m_add(s[1]),
        v_keep(s[2]),
        v_add(s[3]),
        from_moment(s[4]),
        from_grad(s[5]),
        root_scale(s[6]),
        epsilon(s[7]) {}

  // Updates the moments of V elements from j on; returns the quotients.
  template <int V, bool kMoment>
  __device__ Vector<Real, V> step(const Real* grad, Real* m, Real* v,
                                  int64_t j) const {
    const auto g = load<V>(grad + j);
    auto second = load<V>(v + j);
    Vector<Real, V> top;
    for (int t = 0; t < V; ++t) top.x[t] = mul(from_grad, g.x[t]);
    if constexpr (kMoment) {
      auto first = load<V>(m + j);
      for (int t = 0; t < V; ++t) {
        first.x[t] = add(mul(m_keep, first.x[t]), mul(m_add, g.x[t]));
        top.x[t] = add(mul(from_moment, first.x[t]), top.x[t]);
      }
      store<V>(m + j, first);
    }
    for (int t = 0; t < V; ++t) {
      second.x[t] =
          add(mul(v_keep, second.x[t]), mul(mul(v_add, g.x[t]), g.x[t]));
      top.x[t] =
          quotient(top.x[t], add(mul(root(second.x[t]), root_scale), epsilon));
    }
    store<V>(v + j, second);
    return top;
  }
};

// Applies Adam to many tensors in one launch.

constexpr int kThreads = 256;

template <class Real>
struct Entry {
  const Real* grad = nullptr;
  Real* m = nullptr;
  Real* v = nullptr;
  Real* weights = nullptr;
  uint16_t* rounded = nullptr;
  int64_t count = 0;
  int64_t first_chunk = 0;
  int64_t vectors = 0;
};

template <class Real, int V, bool kMoment>
__device__ void update(const Entry<Real>& e, const Adam<Real>& adam,
                       const Applied<Real>& apply, int64_t j) {
  auto p = load<V>(e.weights + j);
  const auto u = adam.template step<V, kMoment>(e.grad, e.m, e.v, j);
  for (int t = 0; t < V; ++t) p.x[t] = apply(p.x[t], u.x[t]);
  store<V>(e.weights + j, p);
  if (e.rounded != nullptr) store_weights<V>(e.rounded + j, p);
}

template <class Real, bool kMoment>
__device__ void update_chunk(const Entry<Real>& e, const Adam<Real>& adam,
                             const Applied<Real>& apply, int64_t begin,
                             int64_t end) {
  constexpr int V = kVector<Real>;
  const int64_t whole = e.vectors != 0 ? begin + (end - begin) / V * V : begin;
  for (int64_t j = begin + V * threadIdx.x; j < whole; j += V * kThreads)
    update<Real, V, kMoment>(e, adam, apply, j);
  for (int64_t j = whole + threadIdx.x; j < end; j += kThreads)
    update<Real, 1, kMoment>(e, adam, apply, j);
}

template <class Real>
__global__ void __launch_bounds__(kThreads)
    adam_apply_kernel(const Entry<Real>* entries, int64_t num_entries,
                      int64_t num_chunks, const Real* scalars,
                      const int32_t* skip) {
  if (skip != nullptr && *skip != 0) return;
  const Adam<Real> adam(scalars);
  const Applied<Real> apply(scalars + 8);
  for (int64_t c = blockIdx.x; c < num_chunks; c += gridDim.x) {
    const Entry<Real> e = entries[entry_of(entries, num_entries, c)];
    const int64_t begin = (c - e.first_chunk) * kChunk;
    const int64_t end = begin + kChunk < e.count ? begin + kChunk : e.count;
    if (e.m != nullptr)
      update_chunk<Real, true>(e, adam, apply, begin, end);
    else
      update_chunk<Real, false>(e, adam, apply, begin, end);
  }
}

template <class Real>
Entry<Real> entry_for(const Engine::AdamRuns& t) {
  for (const ConstRun& run :
       {t.grad, ConstRun(t.m), ConstRun(t.v), ConstRun(t.weights)})
    CANZONA_CHECK(run.data == nullptr || run.dtype == DTypeOf<Real>::value,
                  "dtype ", to_string(run.dtype));
  CANZONA_CHECK(t.rounded == nullptr || sizeof(Real) == sizeof(float),
                "rounded copies are of fp32");
  const bool vectors = is_aligned(t.grad.data, 16) &&
                       is_aligned(t.m.data, 16) && is_aligned(t.v.data, 16) &&
                       is_aligned(t.weights.data, 16) &&
                       is_aligned(t.rounded, 8);
  return {reinterpret_cast<const Real*>(t.grad.data),
          reinterpret_cast<Real*>(t.m.data),
          reinterpret_cast<Real*>(t.v.data),
          reinterpret_cast<Real*>(t.weights.data),
          t.rounded,
          t.count,
          0,
          vectors ? 1 : 0};
}

// Applies Adam to the tensors of this type.
template <class Real>
void apply_all(CudaEngine& engine, std::span<const Engine::AdamRuns> tensors,
               const AdamCoefficients& adam, const Apply& apply) {
  std::vector<Entry<Real>> entries;
  for (const Engine::AdamRuns& t : tensors)
    if (t.grad.dtype == DTypeOf<Real>::value && t.count > 0)
      entries.push_back(entry_for<Real>(t));
  if (entries.empty()) return;
  const int64_t chunks = number_chunks(entries);
  std::array<double, 11> numbers = {};
  std::ranges::copy(in_order(adam), numbers.begin());
  numbers[8] = apply.keep_before;
  numbers[9] = apply.step;
  numbers[10] = apply.keep_after;
  const Real* scalars = engine.push<Real>(numbers);
  const Entry<Real>* table = engine.table(entries);
  if (engine.dry("adam_apply", sizeof(Real), chunks)) return;
  const int64_t most = kBlocksPerMultiprocessor * engine.num_multiprocessors();
  adam_apply_kernel<Real>
      <<<static_cast<unsigned>(std::min(chunks, most)), kThreads, 0,
         engine.stream()>>>(table, static_cast<int64_t>(entries.size()), chunks,
                            scalars, engine.skip_flag());
  check_cuda(cudaGetLastError(), "adam_apply");
}

}  // namespace

void CudaEngine::adam_apply(std::span<const AdamRuns> tensors,
                            const AdamCoefficients& adam, const Apply& apply) {
  CANZONA_CHECK(!apply.cautious, "cautious decay of Adam in one pass");
  for (const AdamRuns& t : tensors)
    CANZONA_CHECK(t.grad.dtype == DType::kFp32 || t.grad.dtype == DType::kFp64,
                  "not an operation of ", to_string(t.grad.dtype));
  apply_all<float>(*this, tensors, adam, apply);
  apply_all<double>(*this, tensors, adam, apply);
}

namespace {

// The element-wise stages (linalg/stages.h) of the CUDA engine.

// True if runs may be read 16 bytes at a time; for rounded copies, 8.
template <class... Pointers>
bool all_aligned(const Pointers*... pointers) {
  return (is_aligned(pointers, 16) && ...);
}

// Momentum or, without kMomentum, the gradient passed through.
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
      if constexpr (kRounded) store_weights<V>(rounded + j, p);
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

namespace {

struct WidenEntry {
  float* to = nullptr;
  const uint16_t* from = nullptr;
  int64_t count = 0;
  int64_t first_chunk = 0;
  int64_t vectors = 0;
};

__global__ void __launch_bounds__(kThreads)
    widen_kernel(const WidenEntry* entries, int64_t num_entries,
                 int64_t num_chunks, const int32_t* skip) {
  if (skip != nullptr && *skip != 0) return;
  constexpr int V = 4;
  for (int64_t c = blockIdx.x; c < num_chunks; c += gridDim.x) {
    const WidenEntry e = entries[entry_of(entries, num_entries, c)];
    const int64_t begin = (c - e.first_chunk) * kChunk;
    const int64_t end = begin + kChunk < e.count ? begin + kChunk : e.count;
    const int64_t whole =
        e.vectors != 0 ? begin + (end - begin) / V * V : begin;
    for (int64_t j = begin + V * threadIdx.x; j < whole; j += V * kThreads) {
      const auto in = load<V>(e.from + j);
      Vector<float, V> out;
      for (int t = 0; t < V; ++t) out.x[t] = from_bf16(in.x[t]);
      store<V>(e.to + j, out);
    }
    for (int64_t j = whole + threadIdx.x; j < end; j += kThreads)
      e.to[j] = from_bf16(e.from[j]);
  }
}

}  // namespace

void CudaEngine::widen(std::span<const Widened> runs) {
  std::vector<WidenEntry> entries;
  for (const Widened& run : runs)
    if (run.count > 0)
      entries.push_back({run.to, run.from, run.count, 0,
                         is_aligned(run.to, 16) && is_aligned(run.from, 8)});
  if (entries.empty()) return;
  const int64_t chunks = number_chunks(entries);
  const WidenEntry* table = moving_table(std::span<const WidenEntry>(entries));
  if (dry("widen", chunks, entries.size())) return;
  const int64_t most = kBlocksPerMultiprocessor * num_multiprocessors();
  widen_kernel<<<static_cast<unsigned>(std::min(chunks, most)), kThreads, 0,
                 stream()>>>(table, static_cast<int64_t>(entries.size()),
                             chunks, skip_flag());
  check_cuda(cudaGetLastError(), "widen");
}

namespace {

struct RoundWeights {
  uint16_t* to;
  const float* from;

  template <int V>
  __device__ void at(int64_t, int64_t j) const {
    store_weights<V>(to + j, load<V>(from + j));
  }
  __device__ RoundWeights of(int64_t) const { return *this; }
};

struct SplitMasters {
  uint16_t* weights;
  uint16_t* remainders;
  const float* from;

  template <int V>
  __device__ void at(int64_t, int64_t j) const {
    const auto masters = load<V>(from + j);
    Vector<uint16_t, V> rest;
    for (int t = 0; t < V; ++t)
      rest.x[t] = remainder_of_master(__float_as_uint(masters.x[t]));
    store_weights<V>(weights + j, masters);
    store<V>(remainders + j, rest);
  }
  __device__ SplitMasters of(int64_t) const { return *this; }
};

struct JoinMasters {
  float* to;
  const uint16_t* weights;
  const uint16_t* remainders;

  template <int V>
  __device__ void at(int64_t, int64_t j) const {
    const auto upper = load<V>(weights + j);
    const auto rest = load<V>(remainders + j);
    Vector<float, V> masters;
    for (int t = 0; t < V; ++t)
      masters.x[t] = __uint_as_float(master_of(upper.x[t], rest.x[t]));
    store<V>(to + j, masters);
  }
  __device__ JoinMasters of(int64_t) const { return *this; }
};

// Halves of masters may be read 8 bytes at a time.
bool halves_aligned(const float* masters, const uint16_t* weights,
                    const uint16_t* remainders) {
  return is_aligned(masters, 16) && is_aligned(weights, 8) &&
         is_aligned(remainders, 8);
}

}  // namespace

void CudaEngine::round_weights(uint16_t* to, const float* from, int64_t count) {
  if (dry("round_weights", to, from, count)) return;
  launch_elements<4>(*this, "round_weights", RoundWeights{to, from},
                     {1, count, 1}, halves_aligned(from, to, to));
}

void CudaEngine::split_masters(uint16_t* weights, uint16_t* remainders,
                               const float* from, int64_t count) {
  if (dry("split_masters", weights, remainders, from, count)) return;
  launch_elements<4>(*this, "split_masters",
                     SplitMasters{weights, remainders, from}, {1, count, 1},
                     halves_aligned(from, weights, remainders));
}

void CudaEngine::join_masters(float* to, const uint16_t* weights,
                              const uint16_t* remainders, int64_t count) {
  if (dry("join_masters", to, weights, remainders, count)) return;
  launch_elements<4>(*this, "join_masters",
                     JoinMasters{to, weights, remainders}, {1, count, 1},
                     halves_aligned(to, weights, remainders));
}

}  // namespace canzona::linalg
