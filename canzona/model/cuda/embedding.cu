#include "canzona/model/cuda/lots.cuh"
#include "canzona/model/cuda/stages.h"

namespace canzona::model::gpu {
namespace {

template <class T>
__global__ void __launch_bounds__(256)
    embed_kernel(T* x, const T* table, const int32_t* tokens, int64_t rows,
                 int64_t cols) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const T* from = table + int64_t{tokens[row]} * cols;
  for (int64_t j = int64_t{threadIdx.x} * kLot; j < cols;
       j += int64_t{blockDim.x} * kLot)
    store_lot(x + row * cols + j, load_lot(from + j));
}

// A thread adds columns of its own of all places of a row.
template <class T>
__global__ void __launch_bounds__(256)
    embed_backward_kernel(float* table, const T* gradient, SortedTokens tokens,
                          int64_t cols) {
  const int64_t k = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (k >= tokens.count) return;
  const int32_t begin = tokens.begins[k], end = tokens.begins[k + 1];
  float* to = table + int64_t{tokens.rows[k]} * cols;
  for (int64_t j = int64_t{threadIdx.x} * kLot; j < cols;
       j += int64_t{blockDim.x} * kLot) {
    Lot sum = {};
#pragma unroll 4
    for (int32_t p = begin; p < end; ++p) {
      const Lot v = load_lot(gradient + int64_t{tokens.places[p]} * cols + j);
      for (int i = 0; i < kLot; ++i) sum.at[i] += v.at[i];
    }
    const Lot before = load_lot(to + j);
    for (int i = 0; i < kLot; ++i) sum.at[i] += before.at[i];
    store_lot(to + j, sum);
  }
}

}  // namespace

template <class T>
void embed(CudaEngine& engine, T* x, const T* table, const int32_t* tokens,
           int64_t rows, int64_t cols) {
  if (engine.dry("decoder embedding", x, table, tokens, rows, cols)) return;
  const dim3 block = row_block(cols);
  embed_kernel<<<num_blocks(rows, block.y), block, 0, engine.stream()>>>(
      x, table, tokens, rows, cols);
  check_launched("embedding");
}

template <class T>
void embed_backward(CudaEngine& engine, float* table, const T* gradient,
                    const SortedTokens& tokens, int64_t cols) {
  if (engine.dry("decoder embedding backward", table, gradient, tokens.places,
                 tokens.count, cols))
    return;
  const dim3 block = row_block(cols);
  embed_backward_kernel<<<num_blocks(tokens.count, block.y), block, 0,
                          engine.stream()>>>(table, gradient, tokens, cols);
  check_launched("embedding backward");
}

#define CANZONA_EMBED(T)                                                     \
  template void embed<T>(CudaEngine&, T*, const T*, const int32_t*, int64_t, \
                         int64_t);                                           \
  template void embed_backward<T>(CudaEngine&, float*, const T*,             \
                                  const SortedTokens&, int64_t);
CANZONA_EMBED(float)
CANZONA_EMBED(uint16_t)
#undef CANZONA_EMBED

}  // namespace canzona::model::gpu
