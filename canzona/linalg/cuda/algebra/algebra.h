// The algebras of a GPU, and what they share: loading operands and the stages
// on 16-bit tiles.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/tiles/tile_product.h"
#include "canzona/linalg/matrix.h"
#include "canzona/linalg/operand.h"

namespace canzona {

// Fills the operands of Newton–Schulz on a GPU: momentum, Nesterov's blend,
// norm and cast, without a pass of their own for any of them.
//
//   launch_scales(source, normalization, work, stream);  // changes no state
//   launch_load(source, work.scales, target, stream);
//
// The norm is taken first, of the blend that the second pass computes again: it
// is needed before the numbers are rounded to 16 bits. Sums are of chunks that
// only the shape decides, in fp64, added in order. All pointers are of the
// device. Asynchronous; any thread may call, for its current device.

// `count` contiguous matrices of `elements` each, wherever they lie. Without
// momenta the gradients are taken as they are.
template <class Real>
struct BlendSource {
  const Real* const* grads = nullptr;
  Real* const* momenta = nullptr;
  const double* blend = nullptr;  // keep, add, from_grad, from_momentum
  int64_t elements = 0;
  int64_t count = 0;
};

struct ScaleRule {
  double factor = 1;
  double epsilon = 0;
  bool add_epsilon = false;
};

// Scratch: `slots` numbers per matrix, and what comes out, one per matrix.
int64_t scale_slots(int64_t elements);
struct ScaleWork {
  double* slots = nullptr;
  double* peaks = nullptr;   // powers of two; one per matrix
  double* scales = nullptr;  // one over the enlarged norm; 0 for zeros
};

template <class Real>
void launch_scales(const BlendSource<Real>& source, const ScaleRule& rule,
                   const ScaleWork& work, cudaStream_t stream);

// Rows of `cols` elements, `row_stride` apart.
struct LoadTarget {
  std::byte* data = nullptr;
  DType dtype = DType::kFp16;
  int64_t cols = 0;
  int64_t row_stride = 0;
  int64_t matrix_stride = 0;
};

// target = blend·scale, rounded once; the momenta advance.
template <class Real>
void launch_load(const BlendSource<Real>& source, const double* scales,
                 const LoadTarget& target, cudaStream_t stream);

// Fills an operand of an algebra of the GPU from where a Load says.

// A wide operand lies in memory as it came.
struct StoredShape {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;

  int64_t matrix_stride() const { return rows * row_stride; }
};
// Rows begin at multiples of `step` elements.
StoredShape stored_shape(const Operand& x, int64_t step);

// Memory for a wide operand of `count` matrices.
Operand take_operand(Arena& arena, const Operand& shape, int64_t step,
                     DType dtype);

// Returns where the matrices of a batch begin, one after another or scattered,
// in a table on the device, for the launches of the present call.
template <class Real, class Byte>
Real* const* device_places(CudaEngine& engine,
                           const BasicMatrices<Byte>& matrices) {
  std::vector<Real*> places;
  places.reserve(static_cast<size_t>(matrices.count));
  for (int64_t i = 0; i < matrices.count; ++i)
    places.push_back(reinterpret_cast<Real*>(matrices.at(i).data));
  return engine.table(places);
}

// The same where they may begin elsewhere at each repetition.
template <class Real, class Byte>
Real* const* moving_places(CudaEngine& engine,
                           const BasicMatrices<Byte>& matrices) {
  std::vector<Real*> places;
  places.reserve(static_cast<size_t>(matrices.count));
  for (int64_t i = 0; i < matrices.count; ++i)
    places.push_back(reinterpret_cast<Real*>(matrices.at(i).data));
  return engine.moving_table(std::span<Real* const>(places));
}

// x = the load, divided by its norm, in numbers of `dtype`.
void load_operand(CudaEngine& engine, const Operand& x,
                  const StoredShape& shape, DType dtype, const Load& load,
                  const Normalization& normalization);

// X and its Gram matrix R, as Algebra::normalize_by_gram says. A folded R has
// nothing above its diagonal blocks (Tiles).
void normalize_operand(CudaEngine& engine, const Operand& x,
                       const StoredShape& x_shape, const Operand& r,
                       const StoredShape& r_shape, bool r_folded, DType dtype,
                       double factor);

// Element-wise work on the operands of Newton–Schulz between products.
//
// All pointers are of the device; calls are asynchronous.

// D = beta·C + diagonal·I, rounded once.
void launch_tile_line(TileType type, const Tiles& d, const TileAddend& addend,
                      cudaStream_t stream);

// 16-bit results into fp32 matrices: stored, or, with scalars, taken from
// weights, each p = (p·keep_before - step·x)·keep_after, with bf16 copies.
void launch_tile_store(TileType type, const Tiles& x,
                       const TileWeights& weights, cudaStream_t stream);

int64_t tile_norm_slots(const Tiles& r);  // per matrix
struct TileScaleWork {
  double* slots = nullptr;
  double* scales = nullptr;  // one per matrix
};
// With s = factor·sqrt(|R|_F): X = X/s and R = R/s²; zeros stay. It takes any
// type of number.
void scale_by_norm(DType dtype, const Tiles& x, const Tiles& r, double factor,
                   const TileScaleWork& work, cudaStream_t stream);

// Newton–Schulz on a GPU.
//
//   std::unique_ptr<Algebra> fp16 = make_cuda_algebra(engine, DType::kFp16);
//
// In 16 bits by tensor cores (tile_product.h), in fp32 and fp64 by the engine's
// own products. A matrix that came transposed stays as it came, and products
// take it from the other side; identities lie on the diagonal. The engine
// outlives the algebra; one thread at a time.
class CudaEngine;

std::unique_ptr<Algebra> make_cuda_algebra(CudaEngine& engine, DType dtype);

// One for 16 bits, one for fp32 and fp64.
std::unique_ptr<Algebra> make_tile_algebra(CudaEngine& engine, DType dtype);
std::unique_ptr<Algebra> make_plain_algebra(CudaEngine& engine, DType dtype);

}  // namespace canzona
