// One launch over many runs of elements: each is cut into chunks of the same
// size, which are numbered through, and blocks take one after another.
//
//   entries[i].first_chunk = …;         // ascending, by number_chunks
//   const int64_t entry = entry_of(entries, num_entries, chunk);
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "canzona/linalg/cuda/elements.cuh"

namespace canzona {
namespace {

// Enough work to hide the search for the run.
constexpr int64_t kChunk = 8192;

// Fills in first_chunk from count; gives the number of chunks.
template <class Entry>
int64_t number_chunks(std::vector<Entry>& entries) {
  int64_t chunks = 0;
  for (Entry& entry : entries) {
    entry.first_chunk = chunks;
    chunks += (entry.count + kChunk - 1) / kChunk;
  }
  return chunks;
}

// The last entry that begins at or before the chunk.
template <class Entry>
__device__ int64_t entry_of(const Entry* entries, int64_t num_entries,
                            int64_t chunk) {
  int64_t low = 0;
  int64_t high = num_entries;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (entries[middle].first_chunk <= chunk)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// Calls take(value) for the elements of a chunk that are this thread's, of a
// run that may be read 16 bytes at a time if `vectors` says so.
template <int kThreads, class Real, class Take>
__device__ void for_chunk(const Real* run, bool vectors, int64_t begin,
                          int64_t end, const Take& take) {
  constexpr int V = kVector<Real>;
  const int64_t whole = vectors ? begin + (end - begin) / V * V : begin;
#pragma unroll 4
  for (int64_t j = begin + V * threadIdx.x; j < whole; j += V * kThreads) {
    const auto values = load<V>(run + j);
    for (int t = 0; t < V; ++t) take(values.x[t]);
  }
  for (int64_t j = whole + threadIdx.x; j < end; j += kThreads) take(run[j]);
}

// Sums within a block, in an order that only the number of threads decides.

constexpr int kSumThreads = 256;

struct Add {
  __device__ double operator()(double a, double b) const {
    return __dadd_rn(a, b);
  }
};
struct Largest {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const {
    return a > b ? a : b;
  }
};

// All of kSumThreads call it; the first gets the result.
template <class T, class Combine>
__device__ T over_block(T value, const Combine& combine) {
  __shared__ T values[kSumThreads];
  __syncthreads();
  values[threadIdx.x] = value;
  __syncthreads();
  for (int half = kSumThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half)
      values[threadIdx.x] =
          combine(values[threadIdx.x], values[threadIdx.x + half]);
    __syncthreads();
  }
  return values[0];
}

}  // namespace

}  // namespace canzona
