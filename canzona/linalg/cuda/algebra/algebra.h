// The algebras of a GPU, and what they share: loading operands and the stages
// on 16-bit tiles.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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

// The power of two that brings the largest number of each matrix near 1, where
// squares may leave the range of fp64; else null. Uses slots and peaks.
template <class Real>
const double* launch_peaks(const BlendSource<Real>& source,
                           const ScaleWork& work, cudaStream_t stream);
template <class Real>
void launch_scales(const BlendSource<Real>& source, const ScaleRule& rule,
                   const ScaleWork& work, cudaStream_t stream);

// Cuts of columns, as kernels take them: strip s is [at[s], at[s + 1]).
struct StripCuts {
  int32_t count = 1;
  int64_t at[Strips::kMost + 1] = {};
};

// `rows` rows of `cols` elements, `row_stride` apart; or, if there are strips,
// one strip after another, each contiguous.
struct LoadTarget {
  std::byte* data = nullptr;
  DType dtype = DType::kFp16;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;
  int64_t matrix_stride = 0;
  StripCuts strips{};
};

// target = blend·scale, rounded once; the momenta advance.
template <class Real>
void launch_load(const BlendSource<Real>& source, const double* scales,
                 const LoadTarget& target, cudaStream_t stream);

// Fills an operand of an algebra of the GPU from where a Load says.

// A wide operand lies in memory as it came; with `apart` its strips lie one
// after another, each as if it were alone.
struct StoredShape {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;
  bool apart = false;

  int64_t matrix_stride() const { return rows * row_stride; }
};
// Rows begin at multiples of `step` elements.
StoredShape stored_shape(const Operand& x, int64_t step);

// Memory for a wide operand of `count` matrices, or for a part of one, which
// may have more rows than columns.
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

// x = the load, divided by its norm, in numbers of `dtype`. With `parts` the
// norm is that which so many parts tell, of one fp32 matrix.
void load_operand(CudaEngine& engine, const Operand& x,
                  const StoredShape& shape, DType dtype, const Load& load,
                  const Normalization& normalization,
                  std::span<const NormPart> parts = {});
// The parts of the norm of one fp32 matrix.
void load_operand_parts(CudaEngine& engine, const Operand& x, const Load& load,
                        NormPart* parts);

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

// What the two below have in common, teams' part of it above all. Rows of
// operands begin at multiples of `step` elements; with `apart` strips lie one
// after another.
class CudaAlgebra : public Algebra, public SharedAlgebra {
 public:
  CudaAlgebra(CudaEngine& engine, DType dtype, int64_t step, bool apart)
      : engine_(engine), dtype_(dtype), step_(step), apart_(apart) {}

  Operand wide(Arena& arena, int64_t rows, int64_t cols, int64_t count,
               bool tall, const Strips& strips) final;
  Operand symmetric(Arena& arena, int64_t rows, int64_t count) final;
  void load_normalized(Operand& x, const Load& load,
                       const Normalization& normalization) final;

  // Squares of fp64 may leave its range, which members could not see.
  SharedAlgebra* shared() final {
    return dtype_ == DType::kFp64 ? nullptr : this;
  }
  int64_t sum_bytes() const final { return sizeof(float); }
  int64_t rounded_bytes() const final { return size_of(dtype_); }
  Operand part(Arena& arena, int64_t rows, int64_t cols, bool tall,
               const Strips& strips) final;
  void load_parts(Operand& x, const Load& load,
                  std::span<NormPart> parts) final;
  bool normalize(Operand& x, const Load& load, std::span<const NormPart> all,
                 const Normalization& normalization,
                 std::span<NormPart> parts) final;
  void take_gram(Operand& r, const std::byte* rounded) final;
  bool shares_gram_norm() const final { return false; }
  void put_factor(std::byte* factor, const Operand& q, const Operand& x) final;
  void take_factor(Operand& q, Operand& x, const std::byte* factor,
                   double only_a) final;

 protected:
  StoredShape stored(const Operand& x) const;

  CudaEngine& engine_;
  const DType dtype_;

 private:
  const int64_t step_;
  const bool apart_;
};

// One for 16 bits, one for fp32 and fp64.
std::unique_ptr<Algebra> make_tile_algebra(CudaEngine& engine, DType dtype);
std::unique_ptr<Algebra> make_plain_algebra(CudaEngine& engine, DType dtype);

}  // namespace canzona
