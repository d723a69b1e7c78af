#include "canzona/linalg/cuda/launch.cuh"
#include "canzona/model/cuda/lots.cuh"
#include "canzona/model/cuda/stages.h"

namespace canzona::model::gpu {
namespace {

constexpr int kThreads = 1024;

// Numbers seen so far: the largest, and Σ exp(number - largest).
struct Softmax {
  float largest;
  float sum;
};

__device__ Softmax joined(const Softmax& a, const Softmax& b) {
  const float largest = fmaxf(a.largest, b.largest);
  if (largest == -INFINITY) return {largest, 0};
  return {largest, a.sum * __expf(a.largest - largest) +
                       b.sum * __expf(b.largest - largest)};
}

// All threads of the block get the result; the order is that of a tree.
__device__ Softmax over_threads(Softmax mine) {
  __shared__ Softmax parts[kThreads / kLanes];
  const auto over_lanes = [](Softmax s) {
    for (int step = kLanes / 2; step > 0; step /= 2)
      s = joined(s, {__shfl_down_sync(~0U, s.largest, step),
                     __shfl_down_sync(~0U, s.sum, step)});
    return s;
  };
  mine = over_lanes(mine);
  if (threadIdx.x % kLanes == 0) parts[threadIdx.x / kLanes] = mine;
  __syncthreads();
  if (threadIdx.x < kLanes) {
    const Softmax all = over_lanes(parts[threadIdx.x]);
    if (threadIdx.x == 0) parts[0] = all;
  }
  __syncthreads();
  return parts[0];
}

// A block takes a row: once to find its log-sum, once to replace it.
template <class T>
__global__ void __launch_bounds__(kThreads)
    losses_kernel(float* loss, T* logits, const int32_t* targets, int64_t vocab,
                  int64_t stride, float share) {
  T* row = logits + int64_t{blockIdx.x} * stride;
  const int64_t target = targets[blockIdx.x];
  const float wanted = number(row[target]);
  Softmax mine = {-INFINITY, 0};
  for (int64_t j = int64_t{threadIdx.x} * kLot; j < vocab;
       j += kThreads * kLot) {
    const Lot z = load_lot(row + j);
    float largest = mine.largest;
    for (int i = 0; i < kLot; ++i)
      if (j + i < vocab) largest = fmaxf(largest, z.at[i]);
    float sum = 0;
    for (int i = 0; i < kLot; ++i)
      if (j + i < vocab) sum += __expf(z.at[i] - largest);
    mine = {largest, mine.sum * __expf(mine.largest - largest) + sum};
  }
  const Softmax all = over_threads(mine);  // everybody has read `wanted`
  if (threadIdx.x == 0) loss[blockIdx.x] = all.largest + logf(all.sum) - wanted;
  if (share == 0) return;
  const float factor = share / all.sum;
  for (int64_t j = int64_t{threadIdx.x} * kLot; j < stride;
       j += kThreads * kLot) {
    Lot z = load_lot(row + j);
    for (int i = 0; i < kLot; ++i) {
      const float p = factor * __expf(z.at[i] - all.largest);
      z.at[i] = j + i >= vocab ? 0 : j + i == target ? p - share : p;
    }
    store_lot(row + j, z);
  }
}

__global__ void __launch_bounds__(kSumThreads)
    mean_kernel(double* mean, const float* loss, int64_t count) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kSumThreads)
    sum += static_cast<double>(loss[i]);
  sum = over_block(sum, Add{});
  if (threadIdx.x == 0)
    *mean = count == 0 ? 0 : sum / static_cast<double>(count);
}

}  // namespace

template <class T>
void losses(CudaEngine& engine, float* loss, T* logits, const int32_t* targets,
            int64_t rows, int64_t vocab, int64_t stride, float share) {
  if (engine.dry("decoder loss", loss, logits, targets, rows, vocab, stride,
                 static_cast<double>(share)))
    return;
  losses_kernel<<<static_cast<unsigned>(rows), kThreads, 0, engine.stream()>>>(
      loss, logits, targets, vocab, stride, share);
  check_launched("losses");
}

void mean(CudaEngine& engine, double* mean, const float* loss, int64_t count) {
  if (engine.dry("decoder mean loss", mean, loss, count)) return;
  mean_kernel<<<1, kSumThreads, 0, engine.stream()>>>(mean, loss, count);
  check_launched("mean loss");
}

template void losses<float>(CudaEngine&, float*, float*, const int32_t*,
                            int64_t, int64_t, int64_t, float);
template void losses<uint16_t>(CudaEngine&, float*, uint16_t*, const int32_t*,
                               int64_t, int64_t, int64_t, float);

}  // namespace canzona::model::gpu
