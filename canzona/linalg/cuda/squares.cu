// The largest magnitude and the sum of squares over many runs. Both are
// integers, so that it does not matter which block is first.
#include <algorithm>
#include <cmath>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/chunks.cuh"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/exact.cuh"

namespace canzona {
namespace {

using Word = unsigned long long;  // what atomics are for

struct Entry {
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
    measure_kernel(Found* found, const Entry* entries, int64_t num_entries,
                   int64_t num_chunks, double scale) {
  uint64_t largest = 0;
  Squares squares{scale};
  for (int64_t c = blockIdx.x; c < num_chunks; c += gridDim.x) {
    const Entry e = entries[entry_of(entries, num_entries, c)];
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
  std::vector<Entry> entries;
  for (const Engine::Stretch& s : runs)
    entries.push_back(
        {elements<float>(s.run), s.count, 0, is_aligned(s.run.data, 16)});
  const int64_t chunks = number_chunks(entries);
  if (chunks == 0) return {};
  Arena::Scope scope(engine.arena());
  auto* found = engine.arena().take_array<Found>(1);
  engine.set_zero(reinterpret_cast<std::byte*>(found), sizeof(Found));
  const Entry* table = engine.table(entries);
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
