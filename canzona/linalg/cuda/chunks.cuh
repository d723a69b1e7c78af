// One launch over many runs of elements: each is cut into chunks of the same
// size, which are numbered consecutively, and blocks take one after another.
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

// Sets first_chunk from count; returns the number of chunks.
template <class Entry>
int64_t number_chunks(std::vector<Entry>& entries) {
  int64_t chunks = 0;
  for (Entry& entry : entries) {
    entry.first_chunk = chunks;
    chunks += (entry.count + kChunk - 1) / kChunk;
  }
  return chunks;
}

// Returns the last entry that begins at or before the chunk.
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

// Calls take(value) for this thread's elements of a chunk; `vectors` says that
// the run may be read 16 bytes at a time.
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

// Sums within a block, in an order that depends only on the number of threads.

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

// All kSumThreads threads must call it; the first gets the result.
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
