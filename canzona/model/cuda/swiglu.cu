#include "canzona/model/cuda/lots.cuh"
#include "canzona/model/cuda/stages.h"

namespace canzona::model::gpu {
namespace {

constexpr int kThreads = 256;

__device__ float sigmoid(float x) { return 1 / (1 + __expf(-x)); }

// A thread takes one lot of a row's gates and ups.
__device__ int64_t column() {
  return (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kLot;
}
dim3 grid_of(int64_t rows, int64_t ffn) {
  return dim3(static_cast<unsigned>(rows), num_blocks(ffn, kThreads * kLot));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(T* out, const T* gate_up, int64_t ffn) {
  const int64_t row = blockIdx.x;
  if (column() >= ffn) return;
  const T* from = gate_up + row * 2 * ffn + column();
  Lot gate = load_lot(from);
  const Lot up = load_lot(from + ffn);
  for (int i = 0; i < kLot; ++i)
    gate.at[i] = gate.at[i] * sigmoid(gate.at[i]) * up.at[i];
  store_lot(out + row * ffn + column(), gate);
}

// silu = gate·s; its derivative is s + silu·(1 - s).
template <class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(T* out, T* gate_up, int64_t ffn) {
  const int64_t row = blockIdx.x;
  if (column() >= ffn) return;
  T* to = gate_up + row * 2 * ffn + column();
  out += row * ffn + column();
  Lot gate = load_lot(to);
  Lot up = load_lot(to + ffn);
  Lot d = load_lot(out);
  for (int i = 0; i < kLot; ++i) {
    const float s = sigmoid(gate.at[i]);
    const float silu = gate.at[i] * s;
    const float gradient = d.at[i];
    d.at[i] = silu * up.at[i];
    gate.at[i] = gradient * up.at[i] * (s + silu * (1 - s));
    up.at[i] = gradient * silu;
  }
  store_lot(out, d);
  store_lot(to, gate);
  store_lot(to + ffn, up);
}

}  // namespace

template <class T>
void swiglu(CudaEngine& engine, T* out, const T* gate_up, int64_t rows,
            int64_t ffn) {
  if (engine.dry("decoder swiglu", out, gate_up, rows, ffn)) return;
  swiglu_kernel<<<grid_of(rows, ffn), kThreads, 0, engine.stream()>>>(
      out, gate_up, ffn);
  check_launched("SwiGLU");
}

template <class T>
void swiglu_backward(CudaEngine& engine, T* out, T* gate_up, int64_t rows,
                     int64_t ffn) {
  if (engine.dry("decoder swiglu backward", out, gate_up, rows, ffn)) return;
  swiglu_backward_kernel<<<grid_of(rows, ffn), kThreads, 0, engine.stream()>>>(
      out, gate_up, ffn);
  check_launched("SwiGLU backward");
}

#define CANZONA_SWIGLU(T)                                               \
  template void swiglu<T>(CudaEngine&, T*, const T*, int64_t, int64_t); \
  template void swiglu_backward<T>(CudaEngine&, T*, T*, int64_t, int64_t);
CANZONA_SWIGLU(float)
CANZONA_SWIGLU(uint16_t)
#undef CANZONA_SWIGLU

}  // namespace canzona::model::gpu
