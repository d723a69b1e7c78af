// The decoder's products on a GPU, by cuBLASLt: T is float, or uint16_t for
// bf16; sums are fp32. The algorithm is the library's first answer for the
// shape, with the engine's workspace, so bits depend on the shape, the library
// and the GPU alone.
//
//   Products<uint16_t> products(engine, numbers);   // numbers: 0, 1
//   products.apply(y, x, {w, out, in}, tokens);     // y = x·Wᵀ
//
// One thread at a time. Algorithms are chosen when a shape is first seen.
#pragma once

#include <cstdint>

#include "canzona/linalg/cuda/cuda_engine.h"

namespace canzona::model::gpu {

// A weight from `in` to `out` numbers. Rows of its outputs are `out_stride`
// apart, which must be a multiple of 8, as `in` is.
template <class T>
struct Map {
  const T* weight = nullptr;
  int64_t out = 0;
  int64_t in = 0;
  int64_t out_stride = 0;
};

template <class T>
class Products {
 public:
  // `numbers` are 0 and 1, in the GPU's memory.
  Products(CudaEngine& engine, const float* numbers)
      : engine_(engine), zero_(numbers), one_(numbers + 1) {}

  // y = x·Wᵀ, plus `addend` unless null.
  void apply(T* y, const T* x, const Map<T>& map, int64_t rows,
             const T* addend = nullptr) const;
  // dx = dy·W
  void apply_transposed(T* dx, const T* dy, const Map<T>& map,
                        int64_t rows) const;
  // dW += dyᵀ·x; the map's weight is not used.
  void add_gradient(float* gradient, const T* dy, const T* x, const Map<T>& map,
                    int64_t rows) const;

 private:
  void run(std::string_view name, const Matrices& c, const ConstMatrices& a,
           Op op_a, const ConstMatrices& b, Op op_b, const float* beta,
           const ConstMatrices* addend = nullptr) const;

  CudaEngine& engine_;
  const float* zero_;
  const float* one_;
};

}  // namespace canzona::model::gpu
