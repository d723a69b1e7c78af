// Finds numbers that are not finite.
#include <algorithm>
#include <climits>
#include <cmath>
#include <cstddef>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/kernels.h"
#include "canzona/linalg/cuda/launch.cuh"

namespace canzona::linalg {
namespace {

constexpr int kThreads = 256;

struct Entry {
  const std::byte* data = nullptr;
  int64_t count = 0;
  int64_t first_chunk = 0;
  int64_t dtype = 0;
  int64_t vectors = 0;

  __device__ bool is(DType type) const {
    return dtype == static_cast<int64_t>(type);
  }
};

template <class Real>
__device__ bool chunk_is_finite(const Entry& e, int64_t begin, int64_t end) {
  const auto* x = reinterpret_cast<const Real*>(e.data);
  bool all = true;
  for_chunk<kThreads>(x, e.vectors != 0, begin, end,
                      [&](Real value) { all &= is_finite(value); });
  return all;
}
__device__ bool narrow_chunk_is_finite(const Entry& e, int64_t begin,
                                       int64_t end) {
  const auto* x = reinterpret_cast<const uint16_t*>(e.data);
  bool all = true;
  for_chunk<kThreads>(x, e.vectors != 0, begin, end, [&](uint16_t value) {
    all &= is_finite(from_bf16(value));
  });
  return all;
}

__global__ void begin_kernel(int32_t* first) { *first = INT_MAX; }

// The smallest number of a run wins, whichever thread finds it.
__global__ void __launch_bounds__(kThreads)
    find_kernel(int32_t* first, const Entry* entries, int64_t num_entries,
                int64_t num_chunks, const int32_t* skip) {
  if (skip != nullptr && *skip != 0) return;
  for (int64_t c = blockIdx.x; c < num_chunks; c += gridDim.x) {
    const int64_t which = entry_of(entries, num_entries, c);
    const Entry e = entries[which];
    const int64_t begin = (c - e.first_chunk) * kChunk;
    const int64_t end = min(begin + kChunk, e.count);
    const bool all = e.is(DType::kBf16) ? narrow_chunk_is_finite(e, begin, end)
                     : e.is(DType::kFp64)
                         ? chunk_is_finite<double>(e, begin, end)
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
    CANZONA_CHECK(s.run.dtype != DType::kFp16, "not an operation of ",
                  to_string(s.run.dtype));
    entries.push_back({s.run.data, s.count, 0,
                       static_cast<int64_t>(s.run.dtype),
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
                              static_cast<int64_t>(entries.size()), chunks,
                              skip_flag());
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
// integers, so the order of blocks does not matter.

using Word = unsigned long long;  // the type of atomics

struct SquaresEntry {
  const std::byte* data = nullptr;
  int64_t count = 0;
  int64_t first_chunk = 0;
  int64_t vectors = 0;
  int64_t is_bf16 = 0;
};

struct Found {
  Word largest;
  Word low;  // of the sum
  Word high;
};

struct Plus {
  __device__ Word operator()(Word a, Word b) const { return a + b; }
};

// The thread that makes the lower word wrap around carries.
__device__ void add_wide(Found* found, Word low, Word high) {
  const Word before = atomicAdd(&found->low, low);
  atomicAdd(&found->high, high + (before + low < before ? 1 : 0));
}

// As in squares_exponent (gradient_numbers.h); the conversion to double is
// exact.
__device__ int exponent_of(int64_t largest) {
  return 30 - ilogb(static_cast<double>(
                  __uint_as_float(static_cast<uint32_t>(largest))));
}

// A thread's sums of the lower 32 bits of squares, and of the bits above them.
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

// With `known`, the exponent is that of the largest |g|, and if that is 0 there
// is nothing to add; if `known` is null, the scale is given.
template <bool kSquares>
__global__ void __launch_bounds__(kSumThreads)
    measure_kernel(Found* found, const SquaresEntry* entries,
                   int64_t num_entries, int64_t num_chunks, double scale,
                   const GradientNumbers* known) {
  uint64_t largest = 0;
  if (kSquares && known != nullptr) {
    if (known->largest == 0 || known->largest >= kInfinityBits) return;
    scale = ldexp(1.0, exponent_of(known->largest));
  }
  Squares squares{scale};
  for (int64_t c = blockIdx.x; c < num_chunks; c += gridDim.x) {
    const SquaresEntry e = entries[entry_of(entries, num_entries, c)];
    const int64_t begin = (c - e.first_chunk) * kChunk;
    const int64_t end = min(begin + kChunk, e.count);
    const auto take = [&](float x) {
      largest = max(largest, magnitude_bits(x));
      if constexpr (kSquares) squares.take(x);
    };
    if (e.is_bf16 != 0)
      for_chunk<kSumThreads>(reinterpret_cast<const uint16_t*>(e.data),
                             e.vectors != 0, begin, end,
                             [&](uint16_t x) { take(from_bf16(x)); });
    else
      for_chunk<kSumThreads>(reinterpret_cast<const float*>(e.data),
                             e.vectors != 0, begin, end, take);
  }
  largest = over_block(largest, Largest{});
  if (threadIdx.x == 0) atomicMax(&found->largest, largest);
  if constexpr (kSquares) squares.give(found);
}

struct ScaledEntry {
  float* data = nullptr;
  int64_t count = 0;
  int64_t first_chunk = 0;
  int64_t vectors = 0;
};

// Multiplies elements of a chunk in place; returns the largest of `largest` and
// their magnitudes afterwards.
__device__ uint64_t scale_chunk(const ScaledEntry& e, int64_t begin,
                                int64_t end, float factor, uint64_t largest) {
  constexpr int V = kVector<float>;
  const int64_t whole = e.vectors != 0 ? begin + (end - begin) / V * V : begin;
#pragma unroll 4
  for (int64_t j = begin + V * threadIdx.x; j < whole; j += V * kSumThreads) {
    auto values = load<V>(e.data + j);
    for (int t = 0; t < V; ++t) {
      values.x[t] = mul(factor, values.x[t]);
      largest = max(largest, magnitude_bits(values.x[t]));
    }
    store<V>(e.data + j, values);
  }
  for (int64_t j = whole + threadIdx.x; j < end; j += kSumThreads) {
    const float value = mul(factor, e.data[j]);
    largest = max(largest, magnitude_bits(value));
    e.data[j] = value;
  }
  return largest;
}

__global__ void __launch_bounds__(kSumThreads)
    scale_and_measure_kernel(Found* found, const ScaledEntry* entries,
                             int64_t num_entries, int64_t num_chunks,
                             const float* factor) {
  uint64_t largest = 0;
  for (int64_t c = blockIdx.x; c < num_chunks; c += gridDim.x) {
    const ScaledEntry e = entries[entry_of(entries, num_entries, c)];
    const int64_t begin = (c - e.first_chunk) * kChunk;
    const int64_t end = min(begin + kChunk, e.count);
    largest = scale_chunk(e, begin, end, *factor, largest);
  }
  largest = over_block(largest, Largest{});
  if (threadIdx.x == 0) atomicMax(&found->largest, largest);
}

// Adds to what was found, without waiting.
template <bool kSquares>
void measure_into(Found* found, CudaEngine& engine, const char* name,
                  std::span<const Engine::Stretch> runs, double scale,
                  const GradientNumbers* known = nullptr) {
  std::vector<SquaresEntry> entries;
  for (const Engine::Stretch& s : runs) {
    CANZONA_CHECK(s.run.dtype == DType::kFp32 || s.run.dtype == DType::kBf16,
                  "not an operation of ", to_string(s.run.dtype));
    entries.push_back({s.run.data, s.count, 0, is_aligned(s.run.data, 16),
                       s.run.dtype == DType::kBf16});
  }
  const int64_t chunks = number_chunks(entries);
  if (chunks == 0) return;
  const SquaresEntry* table = engine.table(entries);
  if (engine.dry(name, found, known, chunks)) return;
  const int64_t most = kBlocksPerMultiprocessor * engine.num_multiprocessors();
  measure_kernel<kSquares><<<static_cast<unsigned>(std::min(chunks, most)),
                             kSumThreads, 0, engine.stream()>>>(
      found, table, static_cast<int64_t>(entries.size()), chunks, scale, known);
  check_cuda(cudaGetLastError(), name);
}

template <bool kSquares>
Found measure(CudaEngine& engine, const char* name,
              std::span<const Engine::Stretch> runs, double scale) {
  engine.needs_results();
  Arena::Scope scope(engine.arena());
  auto* found = engine.arena().take_array<Found>(1);
  engine.set_zero(reinterpret_cast<std::byte*>(found), sizeof(Found));
  measure_into<kSquares>(found, engine, name, runs, scale);
  return engine.results(found, 1)[0];
}

// GradientNumbers begin with the largest and the squares.
static_assert(offsetof(GradientNumbers, largest) == offsetof(Found, largest) &&
              offsetof(GradientNumbers, squares) == offsetof(Found, low));
Found* found_in(GradientNumbers* numbers) {
  return reinterpret_cast<Found*>(numbers);
}

__global__ void note_finite_kernel(GradientNumbers* numbers) {
  numbers->is_finite = numbers->largest < kInfinityBits ? 1 : 0;
}

__global__ void keep_first_kernel(int64_t* code, const int32_t* found,
                                  const int64_t* codes) {
  if (*code == 0 && *found > 0) *code = codes[*found - 1];
}

__global__ void raise_kernel(int64_t* number, const int64_t* other) {
  if (*other > *number) *number = *other;
}

__global__ void judge_shared_kernel(GradientNumbers* numbers,
                                    const int64_t* shared, int64_t least) {
  judge_by_shared(*numbers, shared, least);
}

__global__ void split_squares_kernel(int64_t* limbs,
                                     const GradientNumbers* numbers) {
  split_into_limbs(limbs, numbers->squares);
}

__global__ void join_squares_kernel(GradientNumbers* numbers,
                                    const int64_t* limbs) {
  join_limbs(numbers->squares, limbs);
}

__global__ void put_numbers_kernel(int64_t* to, const int64_t* from) {
  to[threadIdx.x] = from[threadIdx.x];
}

// Computes the same as norm_of_squares and clip_factor (gradient_numbers.h).
__global__ void clip_kernel(GradientNumbers* numbers, const double* limit) {
  double norm = 0;
  if (numbers->skip == 0 && numbers->largest > 0) {
    const double high = ldexp(static_cast<double>(numbers->squares[1]), 64);
    const double squares = add(high, static_cast<double>(numbers->squares[0]));
    norm = ldexp(root(squares), -exponent_of(numbers->largest));
  }
  constexpr double kAboveZero = 1e-6;
  const bool clips = *limit > 0 && norm > *limit;
  numbers->norm = norm;
  numbers->factor = clips ? quotient(*limit, add(norm, kAboveZero)) : 1;
  numbers->is_whole = clips ? 0 : 1;
}

struct ScaleBy {
  float* data;
  const double* factor;

  template <int V>
  __device__ void at(int64_t, int64_t j) const {
    const auto by = static_cast<float>(*factor);
    auto values = load<V>(data + j);
    for (int t = 0; t < V; ++t) values.x[t] = mul(by, values.x[t]);
    store<V>(data + j, values);
  }
  __device__ ScaleBy of(int64_t) const { return *this; }
};
struct ScaleBf16By {
  uint16_t* data;
  const double* factor;

  template <int V>
  __device__ void at(int64_t, int64_t j) const {
    const auto by = static_cast<float>(*factor);
    const auto narrow = load<V>(data + j);
    Vector<float, V> values;
    for (int t = 0; t < V; ++t) values.x[t] = mul(by, from_bf16(narrow.x[t]));
    store_rounded<V>(data + j, values);
  }
  __device__ ScaleBf16By of(int64_t) const { return *this; }
};

}  // namespace

void CudaEngine::find_largest(GradientNumbers* numbers,
                              std::span<const Stretch> runs) {
  measure_into<false>(found_in(numbers), *this, "find_largest", runs, 0);
  if (dry("note_finite", numbers)) return;
  note_finite_kernel<<<1, 1, 0, stream()>>>(numbers);
  check_cuda(cudaGetLastError(), "find_largest");
}

void CudaEngine::scale_and_find_largest(GradientNumbers* numbers,
                                        std::span<const ScaledStretch> runs,
                                        double factor) {
  std::vector<ScaledEntry> entries;
  for (const ScaledStretch& s : runs) {
    CANZONA_CHECK(s.run.dtype == DType::kFp32, "not an operation of ",
                  to_string(s.run.dtype));
    entries.push_back({reinterpret_cast<float*>(s.run.data), s.count, 0,
                       is_aligned(s.run.data, 16)});
  }
  const int64_t chunks = number_chunks(entries);
  const ScaledEntry* table = this->table(entries);
  const auto* by = push<float>(factor);
  if (dry("scale_and_find_largest", numbers, chunks)) return;
  const int64_t most = kBlocksPerMultiprocessor * num_multiprocessors();
  if (chunks > 0)
    scale_and_measure_kernel<<<static_cast<unsigned>(std::min(chunks, most)),
                               kSumThreads, 0, stream()>>>(
        found_in(numbers), table, static_cast<int64_t>(entries.size()), chunks,
        by);
  note_finite_kernel<<<1, 1, 0, stream()>>>(numbers);
  check_cuda(cudaGetLastError(), "scale_and_find_largest");
}

void CudaEngine::keep_first_code(int64_t* code, const int32_t* found,
                                 std::span<const int64_t> codes) {
  if (codes.empty()) return;
  const int64_t* table = this->table(codes);
  if (dry("keep_first_code", code, found)) return;
  keep_first_kernel<<<1, 1, 0, stream()>>>(code, found, table);
  check_cuda(cudaGetLastError(), "keep_first_code");
}

void CudaEngine::raise(int64_t* number, const int64_t* other) {
  if (dry("raise", number, other)) return;
  raise_kernel<<<1, 1, 0, stream()>>>(number, other);
  check_cuda(cudaGetLastError(), "raise");
}

void CudaEngine::judge_shared(GradientNumbers* numbers, const int64_t* shared,
                              int64_t least) {
  if (dry("judge_shared", numbers, shared, least)) return;
  judge_shared_kernel<<<1, 1, 0, stream()>>>(numbers, shared, least);
  check_cuda(cudaGetLastError(), "judge_shared");
}

void CudaEngine::split_squares(int64_t* limbs, const GradientNumbers* numbers) {
  if (dry("split_squares", limbs, numbers)) return;
  split_squares_kernel<<<1, 1, 0, stream()>>>(limbs, numbers);
  check_cuda(cudaGetLastError(), "split_squares");
}

void CudaEngine::join_squares(GradientNumbers* numbers, const int64_t* limbs) {
  if (dry("join_squares", numbers, limbs)) return;
  join_squares_kernel<<<1, 1, 0, stream()>>>(numbers, limbs);
  check_cuda(cudaGetLastError(), "join_squares");
}

void CudaEngine::put_numbers(int64_t* to, std::span<const int64_t> numbers) {
  CANZONA_CHECK(numbers.size() <= 1024, numbers.size(), " numbers");
  if (numbers.empty()) return;
  const int64_t* from = moving_table(numbers);
  if (dry("put_numbers", to, numbers.size())) return;
  put_numbers_kernel<<<1, static_cast<unsigned>(numbers.size()), 0, stream()>>>(
      to, from);
  check_cuda(cudaGetLastError(), "put_numbers");
}

void CudaEngine::add_squares(GradientNumbers* numbers,
                             std::span<const Stretch> runs) {
  measure_into<true>(found_in(numbers), *this, "add_squares", runs, 0, numbers);
}

void CudaEngine::clip(GradientNumbers* numbers, double limit) {
  const double* pushed = push<double>(limit);
  if (dry("clip", numbers)) return;
  clip_kernel<<<1, 1, 0, stream()>>>(numbers, pushed);
  check_cuda(cudaGetLastError(), "clip");
}

void CudaEngine::scale_by(Run run, const double* factor, int64_t count) {
  if (run.dtype == DType::kBf16) {
    auto* narrow = reinterpret_cast<uint16_t*>(run.data);
    if (dry("scale_bf16_by", narrow, factor, count)) return;
    return launch_elements<4>(*this, "scale_by", ScaleBf16By{narrow, factor},
                              {1, count, 1}, is_aligned(narrow, 8));
  }
  auto* data = elements<float>(run);
  if (dry("scale_by", data, factor, count)) return;
  launch_elements<4>(*this, "scale_by", ScaleBy{data, factor}, {1, count, 1},
                     is_aligned(data, 16));
}

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

}  // namespace canzona::linalg
