#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "canzona/linalg/cuda/algebra/algebra.h"
#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/launch.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_numbers.cuh"

namespace canzona::linalg {
namespace {

constexpr int kThreads = kSumThreads;
constexpr int kStageChunk = 64 * kThreads;

// The numbers of a batch, without the padding of its rows.
template <class T>
struct Elements {
  T* data;
  int64_t cols, row_stride, matrix_stride, elements;
  bool folded;

  explicit Elements(const Tiles& t)
      : data(reinterpret_cast<T*>(t.data)),
        cols(t.cols),
        row_stride(t.row_stride),
        matrix_stride(t.matrix_stride),
        elements(t.rows * t.cols),
        folded(t.folded) {}

  __device__ T& at(int64_t matrix, int64_t i) const {
    return data[matrix * matrix_stride + i / cols * row_stride + i % cols];
  }
  // Reads the mirrored number where a folded matrix stores nothing.
  __device__ T read(int64_t matrix, int64_t i) const {
    const int64_t row = i / cols, col = i % cols;
    const bool above = folded && row / kFold < col / kFold;
    return at(matrix, above ? col * cols + row : i);
  }
};

template <class T>
__device__ double to_double(T value) {
  if constexpr (sizeof(T) == 8) return value;
  return static_cast<double>(static_cast<float>(value));
}
template <class T>
__device__ T from_double(double value) {
  if constexpr (sizeof(T) == 8) return value;
  return T(static_cast<float>(value));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    line_kernel(Elements<T> d, Elements<T> c, float beta, float diagonal) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= d.elements) return;
  const float own = i / d.cols == i % d.cols ? diagonal : 0.0F;
  d.at(blockIdx.y, i) =
      T(fmaf(beta, static_cast<float>(c.at(blockIdx.y, i)), own));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    diagonal_kernel(Elements<T> d, float value) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= d.cols) return;
  T& own = d.at(blockIdx.y, i * d.cols + i);
  own = T(static_cast<float>(own) + value);
}

// Squares are mirrored in tiles, two numbers at a time.
constexpr int32_t kMirrorSide = 64;

__global__ void __launch_bounds__(kThreads) mirror_tiles_kernel(Tiles squares) {
  constexpr int32_t kPairs = kMirrorSide / 2;
  constexpr int32_t kRows = kThreads / kPairs;
  __shared__ uint32_t pairs[kMirrorSide][kPairs + 1];
  const auto* halves = reinterpret_cast<const uint16_t*>(pairs);
  const auto row = static_cast<int32_t>(blockIdx.y) * kMirrorSide;
  const auto col = static_cast<int32_t>(blockIdx.x) * kMirrorSide;
  if (col > row) return;
  const auto n = static_cast<int32_t>(squares.rows);
  const int32_t lane = threadIdx.x % kPairs, first = threadIdx.x / kPairs;
  auto* data = reinterpret_cast<uint16_t*>(squares.data) +
               blockIdx.z * squares.matrix_stride;
  for (int32_t i = first; i < kMirrorSide; i += kRows)
    if (row + i < n && col + 2 * lane < n)
      pairs[i][lane] = *reinterpret_cast<const uint32_t*>(
          data + (row + i) * squares.row_stride + col + 2 * lane);
  __syncthreads();
  for (int32_t i = first; i < kMirrorSide; i += kRows) {
    const int32_t to_row = col + i, to_col = row + 2 * lane;
    if (to_row >= n) continue;
    uint16_t* to = data + to_row * squares.row_stride + to_col;
    const uint32_t one = halves[2 * lane * 2 * (kPairs + 1) + i];
    const uint32_t other = halves[(2 * lane + 1) * 2 * (kPairs + 1) + i];
    if (to_col > to_row && to_col + 1 < n) {
      *reinterpret_cast<uint32_t*>(to) = one | other << 16;
    } else {
      if (to_col > to_row && to_col < n) to[0] = static_cast<uint16_t>(one);
      if (to_col + 1 > to_row && to_col + 1 < n)
        to[1] = static_cast<uint16_t>(other);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    store_kernel(Elements<T> x, TileWeights to) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= x.elements) return;
  const auto o = static_cast<float>(x.at(blockIdx.y, i));
  const auto matrix = static_cast<int32_t>(blockIdx.y);
  const auto row = static_cast<int32_t>(i / x.cols);
  const int64_t there = i + skipped_before(to, matrix, row);
  float* p = to.weights[matrix] + there;
  const float value =
      to.scalars == nullptr ? o : WeightScalars::load(to.scalars).apply(*p, o);
  *p = value;
  if (to.copies != nullptr)
    to.copies[matrix][there] = weight_of_master(__float_as_uint(value));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    squares_kernel(Elements<T> r, int64_t num_partials, double* partials) {
  double sum = 0;
  const int64_t begin = int64_t{blockIdx.x} * kStageChunk;
  const int64_t end =
      begin + kStageChunk < r.elements ? begin + kStageChunk : r.elements;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const double value = to_double(r.read(blockIdx.y, i));
    sum += value * value;
  }
  sum = over_block(sum, Add());
  if (threadIdx.x == 0) partials[blockIdx.y * num_partials + blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    gram_scale_kernel(const double* partials, int64_t num_partials,
                      double factor, double* scales) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < num_partials; i += kThreads)
    sum += partials[blockIdx.x * num_partials + i];
  sum = over_block(sum, Add());
  if (threadIdx.x != 0) return;
  const double square = sqrt(sum) * factor * factor;
  scales[blockIdx.x] = square > 0 ? 1 / sqrt(square) : 1;
}

// Multiplies by the scale, or by its square (kSquared).
template <class T, bool kSquared>
__global__ void __launch_bounds__(kThreads)
    rescale_kernel(Elements<T> x, const double* scales) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= x.elements) return;
  const double scale = scales[blockIdx.y];
  T& value = x.at(blockIdx.y, i);
  const double factor = kSquared ? scale * scale : scale;
  value = from_double<T>(to_double(value) * factor);
}

dim3 grid_of(const Tiles& t, int64_t per_block) {
  return {blocks_for(t.rows * t.cols, per_block),
          static_cast<unsigned>(t.count)};
}

template <class T>
void scale_typed(const Tiles& x, const Tiles& r, double factor,
                 const TileScaleWork& work, cudaStream_t stream) {
  const int64_t partials = num_norm_partials(r);
  squares_kernel<T><<<grid_of(r, kStageChunk), kThreads, 0, stream>>>(
      Elements<T>(r), partials, work.partials);
  gram_scale_kernel<<<static_cast<unsigned>(r.count), kThreads, 0, stream>>>(
      work.partials, partials, factor, work.scales);
  rescale_kernel<T, true><<<grid_of(r, kThreads), kThreads, 0, stream>>>(
      Elements<T>(r), work.scales);
  rescale_kernel<T, false><<<grid_of(x, kThreads), kThreads, 0, stream>>>(
      Elements<T>(x), work.scales);
}

}  // namespace

void launch_add_diagonal(TileType type, const Tiles& d, float value,
                         cudaStream_t stream) {
  const dim3 grid(blocks_for(d.cols, kThreads), static_cast<unsigned>(d.count));
  if (type == TileType::kFp16)
    diagonal_kernel<<<grid, kThreads, 0, stream>>>(Elements<__half>(d), value);
  else
    diagonal_kernel<<<grid, kThreads, 0, stream>>>(Elements<__nv_bfloat16>(d),
                                                   value);
  check_launch("a multiple of the identity");
}

void launch_mirror_tiles(const Tiles& squares, cudaStream_t stream) {
  const unsigned side = blocks_for(squares.rows, kMirrorSide);
  mirror_tiles_kernel<<<dim3(side, side, static_cast<unsigned>(squares.count)),
                        kThreads, 0, stream>>>(squares);
  check_launch("mirrored squares");
}

void launch_tile_line(TileType type, const Tiles& d, const TileAddend& addend,
                      cudaStream_t stream) {
  const dim3 grid = grid_of(d, kThreads);
  if (type == TileType::kFp16)
    line_kernel<<<grid, kThreads, 0, stream>>>(Elements<__half>(d),
                                               Elements<__half>(addend.c),
                                               addend.beta, addend.diagonal);
  else
    line_kernel<<<grid, kThreads, 0, stream>>>(
        Elements<__nv_bfloat16>(d), Elements<__nv_bfloat16>(addend.c),
        addend.beta, addend.diagonal);
  check_launch("a polynomial of degree one");
}

void launch_tile_store(TileType type, const Tiles& x,
                       const TileWeights& weights, cudaStream_t stream) {
  const dim3 grid = grid_of(x, kThreads);
  if (type == TileType::kFp16)
    store_kernel<<<grid, kThreads, 0, stream>>>(Elements<__half>(x), weights);
  else
    store_kernel<<<grid, kThreads, 0, stream>>>(Elements<__nv_bfloat16>(x),
                                                weights);
  check_launch("results of 16 bits");
}

int64_t num_norm_partials(const Tiles& r) {
  return (r.rows * r.cols + kStageChunk - 1) / kStageChunk;
}

void scale_by_norm(DType dtype, const Tiles& x, const Tiles& r, double factor,
                   const TileScaleWork& work, cudaStream_t stream) {
  if (dtype == DType::kFp16)
    scale_typed<__half>(x, r, factor, work, stream);
  else if (dtype == DType::kBf16)
    scale_typed<__nv_bfloat16>(x, r, factor, work, stream);
  else if (dtype == DType::kFp32)
    scale_typed<float>(x, r, factor, work, stream);
  else
    scale_typed<double>(x, r, factor, work, stream);
  check_launch("the norm of a Gram matrix");
}

namespace {

constexpr int kTile = 32;
constexpr int kTileRows = 8;
constexpr int kTriangleThreads = 256;

// Numbers are moved, never computed with, so only their size matters.
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
__global__ void __launch_bounds__(kTriangleThreads)
    round_kernel(uint16_t* to, const float* from, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kTriangleThreads + threadIdx.x;
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
  if (square.rows == 0) return;
  with_size(dtype, [&]<class T>(T) {
    take_kernel<T>
        <<<tiles_of_side(square.rows), dim3(kTile, kTileRows), 0, stream>>>(
            reinterpret_cast<T*>(triangle), SquareOf<T>(square));
  });
  check_launch("a triangle");
}

void launch_put_triangle(DType dtype, const Tiles& square,
                         const std::byte* triangle, cudaStream_t stream) {
  if (square.rows == 0) return;
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
    kernel<<<blocks_for(count, kTriangleThreads), kTriangleThreads, 0,
             stream>>>(reinterpret_cast<uint16_t*>(rounded), sum, count);
  check_launch("rounded sums");
}

}  // namespace canzona::linalg
