#include "canzona/linalg/cuda/algebra/strips.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "canzona/linalg/cuda/algebra/blend.cuh"
#include "canzona/linalg/cuda/chunks.cuh"
#include "canzona/linalg/cuda/exact.cuh"
#include "canzona/linalg/cuda/launch.cuh"

namespace canzona {
namespace {

constexpr int kThreads = kSumThreads;

// Neighbours first, in place; the sum is the first. `count` is a power of two.
template <class T>
__device__ T add_tree(T* terms, int32_t count) {
  for (int32_t apart = 1; apart < count; apart *= 2)
    for (int32_t i = 0; i < count; i += 2 * apart)
      terms[i] = terms[i] + terms[i + apart];
  return terms[0];
}

__host__ __device__ inline int64_t rows_of_strip(const StripSource& at,
                                                 int32_t strip) {
  return at.tall ? at.cuts.at[strip + 1] - at.cuts.at[strip] : at.rows;
}

int64_t most_rows(const StripSource& at) {
  int64_t most = 0;
  for (int32_t s = 0; s < at.cuts.count; ++s)
    most = std::max(most, rows_of_strip(at, s));
  return most;
}

// One block per row of a strip.
template <class Real>
__global__ void __launch_bounds__(kThreads)
    strip_squares_kernel(BlendSource<Real> source, StripSource at,
                         const double* peaks, double* slots) {
  const auto strip = static_cast<int32_t>(blockIdx.y);
  const int64_t matrix = blockIdx.z, row = blockIdx.x;
  if (row >= rows_of_strip(at, strip)) return;
  const int64_t begin = at.cuts.at[strip];
  const int64_t length = at.tall ? at.rows : at.cuts.at[strip + 1] - begin;
  const int64_t first =
      at.tall ? (begin + row) * at.rows : row * at.cols + begin;
  const Real* grad = source.grads[matrix] + first;
  const Real* momentum =
      source.momenta == nullptr ? nullptr : source.momenta[matrix] + first;
  const double peak = peaks == nullptr ? 1.0 : peaks[matrix];
  double total = 0;
  for (int64_t i = threadIdx.x; i < length; i += kThreads) {
    Real u = grad[i];
    if (momentum != nullptr) {
      const BlendCoefficients<Real> k(source.blend);
      u = blended(k, advance(k, momentum[i], u), u);
    }
    const double scaled = static_cast<double>(u) * peak;
    total += scaled * scaled;
  }
  total = over_block(total, Add());
  if (threadIdx.x == 0)
    slots[(matrix * at.cuts.count + strip) * gridDim.x + row] = total;
}

__global__ void __launch_bounds__(kThreads)
    strip_parts_kernel(StripSource at, int64_t most, const double* slots,
                       NormPart* parts) {
  const auto strip = static_cast<int32_t>(blockIdx.x);
  const int64_t place = int64_t{blockIdx.y} * at.cuts.count + strip;
  const int64_t rows = rows_of_strip(at, strip);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < rows; i += kThreads)
    sum += slots[place * most + i];
  sum = over_block(sum, Add());
  if (threadIdx.x == 0) parts[place] = {sum, sqrt(sum)};
}

__global__ void strip_scales_kernel(const NormPart* parts, int32_t strips,
                                    const double* peaks, ScaleRule rule,
                                    double* scales) {
  const int64_t matrix = blockIdx.x;
  double squares[Strips::kMost];
  for (int32_t s = 0; s < strips; ++s)
    squares[s] = parts[matrix * strips + s].squares;
  scales[matrix] = scale_of(add_tree(squares, strips),
                            peaks == nullptr ? 1.0 : peaks[matrix], rule);
}

struct TreeAt {
  StripSums sums;
  int64_t rows;

  __device__ float operator()(int64_t matrix, int64_t i, int64_t j) const {
    float terms[Strips::kMost];
    const float* at = sums.data + (matrix * sums.strips * rows + i) * rows + j;
    for (int32_t s = 0; s < sums.strips; ++s) terms[s] = at[s * rows * rows];
    return add_tree(terms, sums.strips);
  }
};

template <class T>
struct TriangleAt {
  const T* triangle;
  __device__ T operator()(int64_t, int64_t i, int64_t j) const {
    return triangle[i * (i + 1) / 2 + j];
  }
};

constexpr int kSquare = 32;
constexpr int kSquareRows = 8;  // of threads

template <class T>
struct SymmetricTarget {
  T* data;
  int64_t rows, row_stride, matrix_stride;
  bool mirrors_all;  // else only inside of diagonal blocks
};

// Writes both halves of a symmetric matrix, one square on or below the diagonal
// per block, from source(matrix, i, j) with j <= i.
template <class T, class Source>
__global__ void __launch_bounds__(kSquare* kSquareRows)
    symmetric_kernel(Source source, SymmetricTarget<T> to) {
  __shared__ T square[kSquare][kSquare + 1];
  if (blockIdx.x > blockIdx.y) return;
  const int64_t row0 = int64_t{blockIdx.y} * kSquare;
  const int64_t col0 = int64_t{blockIdx.x} * kSquare;
  T* d = to.data + int64_t{blockIdx.z} * to.matrix_stride;
  for (int r = threadIdx.y; r < kSquare; r += kSquareRows) {
    const int64_t i = row0 + r, j = col0 + threadIdx.x;
    if (i >= to.rows || j > i) continue;
    const T value = T(source(blockIdx.z, i, j));
    square[r][threadIdx.x] = value;
    d[i * to.row_stride + j] = value;
  }
  __syncthreads();
  for (int r = threadIdx.y; r < kSquare; r += kSquareRows) {
    const int64_t i = row0 + threadIdx.x, j = col0 + r;
    const bool read = to.mirrors_all || i / kFold == j / kFold;
    if (i < to.rows && j < i && read)
      d[j * to.row_stride + i] = square[threadIdx.x][r];
  }
}

template <class T, class Source>
void launch_symmetric(const Source& source, const Tiles& d,
                      cudaStream_t stream) {
  const SymmetricTarget<T> to{reinterpret_cast<T*>(d.data), d.rows,
                              d.row_stride, d.matrix_stride,
                              !d.folded || tiles_read_whole_matrices()};
  const unsigned squares = blocks_for(d.rows, kSquare);
  symmetric_kernel<T><<<dim3(squares, squares, static_cast<unsigned>(d.count)),
                        dim3(kSquare, kSquareRows), 0, stream>>>(source, to);
  check_launch("a symmetric matrix");
}

__global__ void __launch_bounds__(kThreads)
    triangle_kernel(TreeAt tree, float* triangle) {
  const int64_t i = blockIdx.x;
  for (int64_t j = threadIdx.x; j <= i; j += kThreads)
    triangle[i * (i + 1) / 2 + j] = tree(0, i, j);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    put_triangle_kernel(const T* from, int64_t row_stride, T* triangle) {
  const int64_t i = blockIdx.x;
  for (int64_t j = threadIdx.x; j <= i; j += kThreads)
    triangle[i * (i + 1) / 2 + j] = from[i * row_stride + j];
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    round_kernel(const float* from, int64_t count, T* to) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) to[i] = T(from[i]);
}

// work(T{}) with the type that `dtype` names.
template <class Work>
void with_number(DType dtype, const Work& work) {
  if (dtype == DType::kFp16) return work(__half{});
  if (dtype == DType::kBf16) return work(__nv_bfloat16{});
  work(float{});
}

DType dtype_of(TileType type) {
  return type == TileType::kFp16 ? DType::kFp16 : DType::kBf16;
}

}  // namespace

StripCuts cuts_of(const Operand& x) {
  StripCuts cuts;
  cuts.count = x.strips.count;
  for (int s = 0; s < x.strips.count; ++s) cuts.at[s] = x.strips.begin(s);
  cuts.at[x.strips.count] = x.cols;
  return cuts;
}

int64_t strip_slots(const StripSource& at, int64_t count) {
  return count * at.cuts.count * most_rows(at);
}

template <class Real>
void launch_strip_parts(const BlendSource<Real>& source, const StripSource& at,
                        const double* peaks, double* slots, NormPart* parts,
                        cudaStream_t stream) {
  const int64_t most = most_rows(at);
  const auto strips = static_cast<unsigned>(at.cuts.count);
  const auto count = static_cast<unsigned>(source.count);
  strip_squares_kernel<Real><<<dim3(static_cast<unsigned>(most), strips, count),
                               kThreads, 0, stream>>>(source, at, peaks, slots);
  strip_parts_kernel<<<dim3(strips, count), kThreads, 0, stream>>>(
      at, most, slots, parts);
  check_launch("the norms of strips");
}

template void launch_strip_parts(const BlendSource<float>&, const StripSource&,
                                 const double*, double*, NormPart*,
                                 cudaStream_t);
template void launch_strip_parts(const BlendSource<double>&, const StripSource&,
                                 const double*, double*, NormPart*,
                                 cudaStream_t);

void launch_strip_scales(const NormPart* parts, int strips, int64_t count,
                         const double* peaks, const ScaleRule& rule,
                         double* scales, cudaStream_t stream) {
  strip_scales_kernel<<<static_cast<unsigned>(count), 1, 0, stream>>>(
      parts, strips, peaks, rule, scales);
  check_launch("the norms of a batch");
}

void launch_strip_tree(TileType type, const StripSums& sums, const Tiles& d,
                       cudaStream_t stream) {
  with_number(dtype_of(type), [&]<class T>(T) {
    launch_symmetric<T>(TreeAt{sums, d.rows}, d, stream);
  });
}

void launch_strip_triangle(const StripSums& sums, int64_t rows, float* triangle,
                           cudaStream_t stream) {
  triangle_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
      TreeAt{sums, rows}, triangle);
  check_launch("the triangle of a sum");
}

void launch_round_triangle(TileType type, const float* from, int64_t count,
                           std::byte* to, cudaStream_t stream) {
  if (count == 0) return;
  with_number(dtype_of(type), [&]<class T>(T) {
    round_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(
        from, count, reinterpret_cast<T*>(to));
  });
  check_launch("the rounding of a sum");
}

void launch_take_triangle(DType dtype, const std::byte* triangle,
                          const Tiles& d, cudaStream_t stream) {
  with_number(dtype, [&]<class T>(T) {
    launch_symmetric<T>(TriangleAt<T>{reinterpret_cast<const T*>(triangle)}, d,
                        stream);
  });
}

void launch_put_triangle(DType dtype, const Tiles& d, std::byte* triangle,
                         cudaStream_t stream) {
  with_number(dtype, [&]<class T>(T) {
    put_triangle_kernel<<<static_cast<unsigned>(d.rows), kThreads, 0, stream>>>(
        reinterpret_cast<const T*>(d.data), d.row_stride,
        reinterpret_cast<T*>(triangle));
  });
  check_launch("the triangle of a factor");
}

}  // namespace canzona
