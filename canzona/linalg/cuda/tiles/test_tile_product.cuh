// For checks of the tile products: device memory, pseudo-random numbers, and a
// reference in fp64 that shares no code with the kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "canzona/linalg/cuda/tiles/tile_product.h"

namespace canzona::linalg {
namespace {

inline void must(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " +
                             cudaGetErrorString(status));
}
#define CANZONA_MUST(call) must(call, #call)

template <class T>
class Buffer {
 public:
  explicit Buffer(int64_t count, int byte = 0) : count_(count) {
    CANZONA_MUST(cudaMalloc(&data_, bytes()));
    CANZONA_MUST(cudaMemset(data_, byte, bytes()));
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(data_); }

  T* get() const { return data_; }
  int64_t count() const { return count_; }
  size_t bytes() const { return static_cast<size_t>(count_) * sizeof(T); }

  std::vector<T> read() const {
    std::vector<T> host(static_cast<size_t>(count_));
    CANZONA_MUST(
        cudaMemcpy(host.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return host;
  }
  void write(const std::vector<T>& host) const {
    CANZONA_MUST(
        cudaMemcpy(data_, host.data(), bytes(), cudaMemcpyHostToDevice));
  }

 private:
  T* data_ = nullptr;
  int64_t count_ = 0;
};

__host__ __device__ inline float noise(uint64_t seed, uint64_t i) {
  uint64_t z = seed * 0xD1342543DE82EF95ULL + (i + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  z ^= z >> 31;
  return static_cast<float>(static_cast<int64_t>(z >> 40) - (1 << 23)) *
         0x1p-23F;
}

__host__ __device__ inline float to_float(uint16_t bits, TileType type) {
  if (type == TileType::kBf16)
    return __bfloat162float(__ushort_as_bfloat16(bits));
  return __half2float(__ushort_as_half(bits));
}

__host__ __device__ inline uint16_t to_bits(float value, TileType type) {
  if (type == TileType::kBf16)
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  return __half_as_ushort(__float2half_rn(value));
}

__global__ void fill_tiles(Tiles tiles, TileType type, uint64_t seed) {
  auto* data = reinterpret_cast<uint16_t*>(tiles.data);
  const int64_t elements = tiles.rows * tiles.cols;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
       i < elements * tiles.count; i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t matrix = i / elements;
    const int64_t row = i % elements / tiles.cols;
    data[matrix * tiles.matrix_stride + row * tiles.row_stride +
         i % tiles.cols] = to_bits(noise(seed, i), type);
  }
}

__global__ void fill_floats(float* data, int64_t count, uint64_t seed) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x)
    data[i] = noise(seed, i);
}

// Matrices whose padding, in rows and between matrices, is NaN.
class Stack {
 public:
  static constexpr int kPoison = 0xFF;

  Stack(int64_t rows, int64_t cols, int64_t count)
      : stride_((cols + 7) / 8 * 8 + 8),
        buffer_(count * (rows * stride_ + 16), kPoison),
        tiles_{reinterpret_cast<std::byte*>(buffer_.get()),
               rows,
               cols,
               stride_,
               count,
               rows * stride_ + 16} {}

  const Tiles& tiles() const { return tiles_; }
  Tiles one(int64_t i) const {
    Tiles tiles = tiles_;
    tiles.data += 2 * i * tiles.matrix_stride;
    tiles.count = 1;
    return tiles;
  }
  void randomize(TileType type, uint64_t seed) const {
    fill_tiles<<<512, 256>>>(tiles_, type, seed);
  }
  std::vector<uint16_t> read() const { return buffer_.read(); }

 private:
  int64_t stride_;
  Buffer<uint16_t> buffer_;
  Tiles tiles_;
};

struct Sums {
  double sum;
  double size;  // the same with absolute values
};

__global__ void reference(TileProduct p, int64_t m, int64_t n, int64_t k,
                          Sums* out) {
  const int64_t col = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  const int64_t row = blockIdx.y;
  const int64_t matrix = blockIdx.z;
  if (col >= n) return;
  const auto* a =
      reinterpret_cast<const uint16_t*>(p.a.data) + matrix * p.a.matrix_stride;
  const auto* b =
      reinterpret_cast<const uint16_t*>(p.b.data) + matrix * p.b.matrix_stride;
  Sums sums{0, 0};
  for (int64_t i = 0; i < k; ++i) {
    const uint16_t x = p.order == TileOrder::kAtB ? a[i * p.a.row_stride + row]
                                                  : a[row * p.a.row_stride + i];
    const uint16_t y = p.order == TileOrder::kABt ? b[col * p.b.row_stride + i]
                                                  : b[i * p.b.row_stride + col];
    const double term =
        static_cast<double>(to_float(x, p.type)) * to_float(y, p.type);
    sums.sum += term;
    sums.size += fabs(term);
  }
  out[(matrix * m + row) * n + col] = sums;
}

}  // namespace
}  // namespace canzona::linalg
