#include "canzona/linalg/cuda/algebra/algebra.h"
#include "canzona/linalg/cuda/launch.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_numbers.cuh"

namespace canzona {
namespace {

constexpr int kTile = 32;
constexpr int kTileRows = 8;
constexpr int kThreads = 256;

// Numbers are moved, never computed with: their size is all that counts.
template <class T>
struct SquareOf {
  T* data;
  int64_t side;
  int64_t row_stride;

  explicit SquareOf(const Tiles& square)
      : data(reinterpret_cast<T*>(square.data)),
        side(square.rows),
        row_stride(square.row_stride) {}
};

__device__ int64_t in_triangle(int64_t row, int64_t col) {
  return row * (row + 1) / 2 + col;
}

template <class T>
__global__ void __launch_bounds__(kTile* kTileRows)
    take_kernel(T* triangle, SquareOf<T> square) {
  if (blockIdx.x > blockIdx.y) return;
  const int64_t col = int64_t{blockIdx.x} * kTile + threadIdx.x;
  for (int i = threadIdx.y; i < kTile; i += kTileRows) {
    const int64_t row = int64_t{blockIdx.y} * kTile + i;
    if (row < square.side && col <= row)
      triangle[in_triangle(row, col)] =
          square.data[row * square.row_stride + col];
  }
}

// Tiles pass through shared memory, so that both halves are written along rows.
template <class T>
__global__ void __launch_bounds__(kTile* kTileRows)
    put_kernel(SquareOf<T> square, const T* triangle) {
  __shared__ T tile[kTile][kTile + 1];
  if (blockIdx.x > blockIdx.y) return;
  const int64_t first_row = int64_t{blockIdx.y} * kTile;
  const int64_t first_col = int64_t{blockIdx.x} * kTile;
  for (int i = threadIdx.y; i < kTile; i += kTileRows) {
    const int64_t row = first_row + i;
    const int64_t col = first_col + threadIdx.x;
    if (row >= square.side || col > row) continue;
    tile[i][threadIdx.x] = triangle[in_triangle(row, col)];
    square.data[row * square.row_stride + col] = tile[i][threadIdx.x];
  }
  __syncthreads();
  for (int i = threadIdx.y; i < kTile; i += kTileRows) {
    const int64_t row = first_row + threadIdx.x;
    const int64_t col = first_col + i;
    if (row < square.side && col < row)
      square.data[col * square.row_stride + row] = tile[threadIdx.x][i];
  }
}

template <bool kBf16>
__global__ void __launch_bounds__(kThreads)
    round_kernel(uint16_t* to, const float* from, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) to[i] = static_cast<uint16_t>(Pair<kBf16>::pack(from[i], 0));
}

dim3 tiles_of_side(int64_t side) {
  const unsigned tiles = blocks_for(side, kTile);
  return {tiles, tiles};
}

template <class Act>
void with_size(DType dtype, const Act& act) {
  if (size_of(dtype) == 2)
    act(uint16_t{});
  else if (size_of(dtype) == 4)
    act(uint32_t{});
  else
    act(uint64_t{});
}

}  // namespace

void launch_take_triangle(DType dtype, std::byte* triangle, const Tiles& square,
                          cudaStream_t stream) {
  with_size(dtype, [&]<class T>(T) {
    take_kernel<T>
        <<<tiles_of_side(square.rows), dim3(kTile, kTileRows), 0, stream>>>(
            reinterpret_cast<T*>(triangle), SquareOf<T>(square));
  });
  check_launch("a triangle");
}

void launch_put_triangle(DType dtype, const Tiles& square,
                         const std::byte* triangle, cudaStream_t stream) {
  with_size(dtype, [&]<class T>(T) {
    put_kernel<T>
        <<<tiles_of_side(square.rows), dim3(kTile, kTileRows), 0, stream>>>(
            SquareOf<T>(square), reinterpret_cast<const T*>(triangle));
  });
  check_launch("a square of a triangle");
}

void launch_round_sum(TileType type, std::byte* rounded, const float* sum,
                      int64_t count, cudaStream_t stream) {
  const auto kernel =
      type == TileType::kBf16 ? round_kernel<true> : round_kernel<false>;
  if (count > 0)
    kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(
        reinterpret_cast<uint16_t*>(rounded), sum, count);
  check_launch("rounded sums");
}

}  // namespace canzona
