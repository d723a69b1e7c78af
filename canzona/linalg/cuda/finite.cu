// Where numbers are not finite.
#include <algorithm>
#include <climits>
#include <cmath>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/chunks.cuh"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/exact.cuh"
#include "canzona/linalg/cuda/typed.h"

namespace canzona {
namespace {

constexpr int kThreads = 256;

struct Entry {
  const std::byte* data = nullptr;
  int64_t count = 0;
  int64_t first_chunk = 0;
  int64_t is_fp64 = 0;
  int64_t vectors = 0;
};

template <class Real>
__device__ bool chunk_is_finite(const Entry& e, int64_t begin, int64_t end) {
  const auto* x = reinterpret_cast<const Real*>(e.data);
  bool all = true;
  for_chunk<kThreads>(x, e.vectors != 0, begin, end,
                      [&](Real value) { all &= is_finite(value); });
  return all;
}

__global__ void begin_kernel(int32_t* first) { *first = INT_MAX; }

// The smallest number of a run wins, whoever finds it.
__global__ void __launch_bounds__(kThreads)
    find_kernel(int32_t* first, const Entry* entries, int64_t num_entries,
                int64_t num_chunks) {
  for (int64_t c = blockIdx.x; c < num_chunks; c += gridDim.x) {
    const int64_t which = entry_of(entries, num_entries, c);
    const Entry e = entries[which];
    const int64_t begin = (c - e.first_chunk) * kChunk;
    const int64_t end = min(begin + kChunk, e.count);
    const bool all = e.is_fp64 != 0 ? chunk_is_finite<double>(e, begin, end)
                                    : chunk_is_finite<float>(e, begin, end);
    if (!all) atomicMin(first, static_cast<int32_t>(which) + 1);
  }
}

__global__ void end_kernel(int32_t* first) {
  if (*first == INT_MAX) *first = 0;
}

template <class Real>
struct MarkNonfinite {
  Strided<const Real> a;
  int32_t* marks;

  struct Worker {
    const Real* a;
    int64_t stride;
    int32_t* mark;
    template <int V>
    __device__ void at(int64_t i, int64_t j) const {
      const auto values = load<V>(a + i * stride + j);
      for (int t = 0; t < V; ++t)
        if (!is_finite(values.x[t])) *mark = 1;
    }
  };
  __device__ Worker of(int64_t k) const {
    return {a.of(k), a.row_stride, marks + k};
  }
};

}  // namespace

void CudaEngine::find_nonfinite(int32_t* first, std::span<const Stretch> runs) {
  CANZONA_CHECK(runs.size() < INT_MAX, runs.size(), " runs");
  std::vector<Entry> entries;
  for (const Stretch& s : runs) {
    CANZONA_CHECK(s.run.dtype == DType::kFp32 || s.run.dtype == DType::kFp64,
                  "not an operation of ", to_string(s.run.dtype));
    entries.push_back({s.run.data, s.count, 0, s.run.dtype == DType::kFp64,
                       is_aligned(s.run.data, 16)});
  }
  const int64_t chunks = number_chunks(entries);
  const Entry* table = this->table(entries);
  if (dry("find_nonfinite", first, chunks)) return;
  const int64_t most = kBlocksPerMultiprocessor * num_multiprocessors();
  begin_kernel<<<1, 1, 0, stream()>>>(first);
  if (chunks > 0)
    find_kernel<<<static_cast<unsigned>(std::min(chunks, most)), kThreads, 0,
                  stream()>>>(first, table,
                              static_cast<int64_t>(entries.size()), chunks);
  end_kernel<<<1, 1, 0, stream()>>>(first);
  check_cuda(cudaGetLastError(), "find_nonfinite");
}

bool CudaEngine::all_finite(ConstRun run, int64_t count) {
  needs_results();
  Arena::Scope scope(arena());
  auto* first = arena().take_array<int32_t>(1);
  const Stretch stretch{run, count};
  find_nonfinite(first, {&stretch, 1});
  return results(first, 1)[0] == 0;
}

void CudaEngine::finite(ConstMatrices a, std::span<bool> results) {
  CANZONA_CHECK_EQ(results.size(), a.count, "results");
  needs_results();
  if (a.count == 0) return;
  Arena::Scope scope(arena());
  auto* marks = arena().take_array<int32_t>(a.count);
  set_zero(reinterpret_cast<std::byte*>(marks),
           a.count * static_cast<int64_t>(sizeof(int32_t)));
  with_real_type(a.dtype, [&]<class Real>(Real) {
    constexpr int V = kVector<Real>;
    flatten(a);
    launch_elements<V>(*this, "finite",
                       MarkNonfinite<Real>{strided<Real>(a), marks},
                       extent_of(a), allows_vectors<V>(a));
  });
  const auto found = this->results(marks, a.count);
  std::ranges::transform(found, results.begin(),
                         [](int32_t mark) { return mark == 0; });
}

namespace {

// The largest magnitude and the sum of squares over many runs. Both are
// integers, so that it does not matter which block is first.

using Word = unsigned long long;  // what atomics are for

struct SquaresEntry {
  const float* data = nullptr;
  int64_t count = 0;
  int64_t first_chunk = 0;
  int64_t vectors = 0;
};

struct Found {
  Word largest;
  Word low;  // of the sum
  Word high;
};

struct Plus {
  __device__ Word operator()(Word a, Word b) const { return a + b; }
};

// Whoever makes the lower word wrap around carries.
__device__ void add_wide(Found* found, Word low, Word high) {
  const Word before = atomicAdd(&found->low, low);
  atomicAdd(&found->high, high + (before + low < before ? 1 : 0));
}

// A thread's sums of the lower 32 bits of squares and of what is above them.
struct Squares {
  double scale;
  Word low = 0;
  Word high = 0;

  __device__ void take(float x) {
    const double scaled = mul(static_cast<double>(x), scale);
    const auto square = static_cast<Word>(__double2ll_rz(mul(scaled, scaled)));
    low += square & 0xffffffffU;
    high += square >> 32;
  }
  __device__ void give(Found* found) {
    low = over_block(low, Plus{});
    high = over_block(high, Plus{});
    if (threadIdx.x != 0) return;
    add_wide(found, low, 0);
    add_wide(found, high << 32, high >> 32);
  }
};

template <bool kSquares>
__global__ void __launch_bounds__(kSumThreads)
    measure_kernel(Found* found, const SquaresEntry* entries,
                   int64_t num_entries, int64_t num_chunks, double scale) {
  uint64_t largest = 0;
  Squares squares{scale};
  for (int64_t c = blockIdx.x; c < num_chunks; c += gridDim.x) {
    const SquaresEntry e = entries[entry_of(entries, num_entries, c)];
    const int64_t begin = (c - e.first_chunk) * kChunk;
    const int64_t end = min(begin + kChunk, e.count);
    for_chunk<kSumThreads>(e.data, e.vectors != 0, begin, end, [&](float x) {
      largest = max(largest, magnitude_bits(x));
      if constexpr (kSquares) squares.take(x);
    });
  }
  largest = over_block(largest, Largest{});
  if (threadIdx.x == 0) atomicMax(&found->largest, largest);
  if constexpr (kSquares) squares.give(found);
}

template <bool kSquares>
Found measure(CudaEngine& engine, const char* name,
              std::span<const Engine::Stretch> runs, double scale) {
  engine.needs_results();
  std::vector<SquaresEntry> entries;
  for (const Engine::Stretch& s : runs)
    entries.push_back(
        {elements<float>(s.run), s.count, 0, is_aligned(s.run.data, 16)});
  const int64_t chunks = number_chunks(entries);
  if (chunks == 0) return {};
  Arena::Scope scope(engine.arena());
  auto* found = engine.arena().take_array<Found>(1);
  engine.set_zero(reinterpret_cast<std::byte*>(found), sizeof(Found));
  const SquaresEntry* table = engine.table(entries);
  if (engine.dry(name, chunks)) return {};
  const int64_t most = kBlocksPerMultiprocessor * engine.num_multiprocessors();
  measure_kernel<kSquares><<<static_cast<unsigned>(std::min(chunks, most)),
                             kSumThreads, 0, engine.stream()>>>(
      found, table, static_cast<int64_t>(entries.size()), chunks, scale);
  check_cuda(cudaGetLastError(), name);
  return engine.results(found, 1)[0];
}

}  // namespace

uint32_t CudaEngine::largest_bits(std::span<const Stretch> runs) {
  return static_cast<uint32_t>(
      measure<false>(*this, "largest_bits", runs, 0).largest);
}

WideSum CudaEngine::sum_of_squares(std::span<const Stretch> runs,
                                   int exponent) {
  const Found found =
      measure<true>(*this, "sum_of_squares", runs, std::ldexp(1.0, exponent));
  check_squares_fit(static_cast<uint32_t>(found.largest), exponent);
  return {found.low, found.high};
}

}  // namespace canzona
