// Numbers that are generated and hashed on the GPU.
#include <algorithm>

#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/number_stream.h"

namespace canzona {
namespace {

// As in base/random.h.
__device__ uint64_t stream_bits(uint64_t seed, uint64_t i) {
  uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

struct FillNumbers {
  float* to;
  NumberStream stream;
  NumberRows rows;

  template <int V>
  __device__ void at(int64_t i, int64_t j) const {
    static_assert(V == 1);
    const uint64_t place =
        rows.first + static_cast<uint64_t>(i * rows.stream_stride + j);
    to[i * rows.row_stride + j] =
        stream.number(stream_bits(stream.seed, place));
  }
  __device__ FillNumbers of(int64_t) const { return *this; }
};

constexpr int kHashThreads = 256;

// Elements are numbered row by row; each block adds its sums to both words.
template <class Bits>
__global__ void __launch_bounds__(kHashThreads)
    hash_kernel(const Bits* from, uint64_t seed, NumberRows rows,
                unsigned long long* words) {
  uint64_t low = 0, high = 0;
  const int64_t all = rows.rows * rows.count;
  const int64_t step = int64_t{gridDim.x} * kHashThreads;
  for (int64_t i = int64_t{blockIdx.x} * kHashThreads + threadIdx.x; i < all;
       i += step) {
    const int64_t row = rows.rows == 1 ? 0 : i / rows.count;
    const int64_t column = i - row * rows.count;
    const uint64_t place = stream_bits(
        seed,
        rows.first + static_cast<uint64_t>(row * rows.stream_stride + column));
    const uint64_t bits = from[row * rows.row_stride + column];
    low += stream_bits(place, bits);
    high += stream_bits(~place, bits);
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    low += __shfl_down_sync(~0U, low, lanes);
    high += __shfl_down_sync(~0U, high, lanes);
  }
  if (threadIdx.x % 32 != 0) return;
  atomicAdd(words, static_cast<unsigned long long>(low));
  atomicAdd(words + 1, static_cast<unsigned long long>(high));
}

}  // namespace

void fill_cuda_numbers(Engine& engine, float* to, const NumberStream& stream,
                       const NumberRows& rows) {
  auto& gpu = static_cast<CudaEngine&>(engine);
  gpu.needs_results();  // seeds change every step, so it is never repeated
  launch_elements<1>(gpu, "fill_numbers", FillNumbers{to, stream, rows},
                     {rows.rows, rows.count, 1}, false);
}

NumberSums sum_cuda_hashes(Engine& engine, const std::byte* from,
                           int64_t element_bytes, uint64_t seed,
                           const NumberRows& rows) {
  auto& gpu = static_cast<CudaEngine&>(engine);
  const int64_t all = rows.rows * rows.count;
  NumberSums sums{};
  if (all == 0) return sums;
  Arena& arena = gpu.arena();
  const Arena::Scope scope(arena);
  auto* words = arena.take_array<unsigned long long>(2);
  gpu.set_zero(reinterpret_cast<std::byte*>(words), sizeof(sums));
  const int64_t most = kBlocksPerMultiprocessor * gpu.num_multiprocessors();
  const auto blocks = static_cast<unsigned>(
      std::min((all + kHashThreads - 1) / kHashThreads, most));
  const auto launch = [&]<class Bits>(const Bits* bits) {
    hash_kernel<<<blocks, kHashThreads, 0, gpu.stream()>>>(bits, seed, rows,
                                                           words);
  };
  if (element_bytes == 2)
    launch(reinterpret_cast<const uint16_t*>(from));
  else
    launch(reinterpret_cast<const uint32_t*>(from));
  check_cuda(cudaGetLastError(), "launch of hash_kernel");
  const auto found = gpu.results(words, 2);
  std::copy(found.begin(), found.end(), sums.begin());
  return sums;
}

}  // namespace canzona
