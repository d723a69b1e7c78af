// Adam applied to many tensors by one launch.
#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/adam.cuh"
#include "canzona/linalg/cuda/chunks.cuh"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/typed.h"

namespace canzona {
namespace {

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
  if (e.rounded != nullptr) store_rounded<V>(e.rounded + j, p);
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
                      int64_t num_chunks, const Real* scalars) {
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

// Those of the tensors that are of this type.
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
  adam_apply_kernel<Real><<<static_cast<unsigned>(std::min(chunks, most)),
                            kThreads, 0, engine.stream()>>>(
      table, static_cast<int64_t>(entries.size()), chunks, scalars);
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

}  // namespace canzona
