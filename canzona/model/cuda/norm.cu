#include "canzona/model/cuda/lots.cuh"
#include "canzona/model/cuda/stages.h"

namespace canzona::model::gpu {
namespace {

__device__ float inverse_root(float squares, int64_t cols, float epsilon) {
  return rsqrtf(squares / static_cast<float>(cols) + epsilon);
}

template <class T>
__global__ void __launch_bounds__(256)
    norm_kernel(T* out, const T* x, const T* weight, int64_t rows, int64_t cols,
                float epsilon) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t step = int64_t{blockDim.x} * kLot;
  const int64_t end = row < rows ? cols : 0;
  x += row * cols;
  out += row * cols;
  float2 sums = {};
  for (int64_t j = int64_t{threadIdx.x} * kLot; j < end; j += step) {
    const Lot v = load_lot(x + j);
    for (int i = 0; i < kLot; ++i) sums.x += v.at[i] * v.at[i];
  }
  const float r = inverse_root(row_sums(sums).x, cols, epsilon);
  for (int64_t j = int64_t{threadIdx.x} * kLot; j < end; j += step) {
    Lot v = load_lot(x + j);
    const Lot w = load_lot(weight + j);
    for (int i = 0; i < kLot; ++i) v.at[i] *= r * w.at[i];
    store_lot(out + j, v);
  }
}

// A row of threads takes a strip of rows one after the other and adds their
// part of the weight's gradient in shared memory, each thread for columns of
// its own.
template <class T>
__global__ void __launch_bounds__(256)
    norm_backward_kernel(NormGradients<T> gradients, const T* x,
                         const T* weight, const T* out_gradient, int64_t rows,
                         int64_t cols, float epsilon) {
  extern __shared__ float all_sums[];
  float* weight_sums = all_sums + threadIdx.y * cols;
  const int64_t strip = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t first = int64_t{threadIdx.x} * kLot;
  const int64_t step = int64_t{blockDim.x} * kLot;
  for (int64_t j = first; j < cols; j += step)
    for (int i = 0; i < kLot; ++i) weight_sums[j + i] = 0;
  for (int64_t s = 0; s < kStrip; ++s) {
    const int64_t row = strip * kStrip + s;
    const int64_t end = row < rows ? cols : 0;
    const T* x_row = x + row * cols;
    const T* d_row = out_gradient + row * cols;
    T* to = gradients.x + row * cols;
    float2 sums = {};
    for (int64_t j = first; j < end; j += step) {
      const Lot v = load_lot(x_row + j), d = load_lot(d_row + j),
                w = load_lot(weight + j);
      for (int i = 0; i < kLot; ++i) {
        sums.x += v.at[i] * v.at[i];
        sums.y += v.at[i] * d.at[i] * w.at[i];
      }
    }
    sums = row_sums(sums);
    const float r = inverse_root(sums.x, cols, epsilon);
    const float k = r * r * r * (sums.y / static_cast<float>(cols));
    for (int64_t j = first; j < end; j += step) {
      const Lot v = load_lot(x_row + j), d = load_lot(d_row + j),
                w = load_lot(weight + j);
      Lot result = {};
      if (!gradients.replaces) result = load_lot(to + j);
      for (int i = 0; i < kLot; ++i) {
        const float g = d.at[i] * r;
        result.at[i] += g * w.at[i] - v.at[i] * k;
        weight_sums[j + i] += g * v.at[i];
      }
      store_lot(to + j, result);
    }
  }
  if (strip * kStrip >= rows) return;
  for (int64_t j = first; j < cols; j += step)
    for (int i = 0; i < kLot; ++i)
      gradients.partial[strip * cols + j + i] = weight_sums[j + i];
}

// A column's partial sums are added by 32 threads, then by a tree.
__global__ void __launch_bounds__(1024)
    columns_kernel(float* sums, const float* partial, int64_t rows,
                   int64_t cols, int64_t stride) {
  __shared__ float parts[kLanes][kLanes + 1];
  const int64_t col = int64_t{blockIdx.x} * kLanes + threadIdx.x;
  float sum = 0;
  if (col < cols)
    for (int64_t row = threadIdx.y; row < rows; row += kLanes)
      sum += partial[row * stride + col];
  parts[threadIdx.y][threadIdx.x] = sum;
  for (unsigned half = kLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half)
      parts[threadIdx.y][threadIdx.x] += parts[threadIdx.y + half][threadIdx.x];
  }
  if (threadIdx.y == 0 && col < cols) sums[col] += parts[0][threadIdx.x];
}

template <class T>
void launch_backward(CudaEngine& engine, const NormGradients<T>& gradients,
                     const T* x, const T* weight, const T* out_gradient,
                     int64_t rows, int64_t cols, float epsilon) {
  constexpr int64_t kMostShared = 48 << 10;
  dim3 block = row_block(cols);
  const auto shared = [&] {
    return int64_t{block.y} * cols * static_cast<int64_t>(sizeof(float));
  };
  while (block.y > 1 && shared() > kMostShared) block.y /= 2;
  if (shared() > kMostShared)
    check_cuda(cudaFuncSetAttribute(norm_backward_kernel<T>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared())),
               "shared memory of a norm");
  norm_backward_kernel<<<num_blocks(num_strips(rows), block.y), block,
                         static_cast<size_t>(shared()), engine.stream()>>>(
      gradients, x, weight, out_gradient, rows, cols, epsilon);
}

}  // namespace

template <class T>
void norm(CudaEngine& engine, T* out, const T* x, const T* weight, int64_t rows,
          int64_t cols, float epsilon) {
  if (engine.dry("decoder norm", out, x, weight, rows, cols)) return;
  const dim3 block = row_block(cols);
  norm_kernel<<<num_blocks(rows, block.y), block, 0, engine.stream()>>>(
      out, x, weight, rows, cols, epsilon);
  check_launched("norm");
}

template <class T>
void norm_backward(CudaEngine& engine, const NormGradients<T>& gradients,
                   const T* x, const T* weight, const T* out_gradient,
                   int64_t rows, int64_t cols, float epsilon) {
  if (!engine.dry("decoder norm backward", gradients.x, gradients.weight, x,
                  weight, out_gradient, rows, cols)) {
    launch_backward(engine, gradients, x, weight, out_gradient, rows, cols,
                    epsilon);
    check_launched("norm backward");
  }
  add_columns(engine, gradients.weight, gradients.partial, num_strips(rows),
              cols, cols);
}

void add_columns(CudaEngine& engine, float* sums, const float* partial,
                 int64_t rows, int64_t cols, int64_t stride) {
  if (engine.dry("decoder column sums", sums, partial, rows, cols, stride))
    return;
  columns_kernel<<<num_blocks(cols, kLanes), dim3(kLanes, kLanes), 0,
                   engine.stream()>>>(sums, partial, rows, cols, stride);
  check_launched("column sums");
}

#define CANZONA_NORM(T)                                                        \
  template void norm<T>(CudaEngine&, T*, const T*, const T*, int64_t, int64_t, \
                        float);                                                \
  template void norm_backward<T>(CudaEngine&, const NormGradients<T>&,         \
                                 const T*, const T*, const T*, int64_t,        \
                                 int64_t, float);
CANZONA_NORM(float)
CANZONA_NORM(uint16_t)
#undef CANZONA_NORM

}  // namespace canzona::model::gpu
