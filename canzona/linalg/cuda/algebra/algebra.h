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

// Scratch: partial sums or maxima, num_scale_partials() per matrix, and what
// comes out, one per matrix.
int64_t num_scale_partials(int64_t elements);
struct ScaleWork {
  double* partials = nullptr;
  double* peaks = nullptr;   // powers of two; one per matrix
  double* scales = nullptr;  // one over the enlarged norm; 0 for zeros
};

template <class Real>
void launch_scales(const BlendSource<Real>& source, const ScaleRule& rule,
                   const ScaleWork& work, cudaStream_t stream);

// The same by strips: what each strip tells of the norm (NormPart), which
// strips of one matrix that lie on several devices tell alike, and the scales
// from that. A part's norm is the power of two that its numbers were multiplied
// by before they were squared: 1 but for fp64.
struct StripCuts {
  int count = 1;
  bool tall = false;
  int64_t rows = 0;                       // of the short side
  int64_t begin[Strips::kMost + 1] = {};  // on the long side
  int64_t first_partial[Strips::kMost + 1] = {};

  int64_t num_partials() const { return first_partial[count]; }
  static StripCuts of(const Operand& x);
};
struct PartWork {
  double* partials = nullptr;  // num_partials() per matrix
  double* peaks = nullptr;     // one per strip
  NormPart* parts = nullptr;   // the result, strip by strip of each matrix
};
template <class Real>
void launch_parts(const BlendSource<Real>& source, const StripCuts& cuts,
                  const PartWork& work, cudaStream_t stream);
void launch_scales_of_parts(const NormPart* parts, int strips, int64_t count,
                            const ScaleRule& rule, double* scales,
                            cudaStream_t stream);

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

// A name for where an operand is cut, for CudaEngine::dry.
int64_t key_of(const Operand& x);

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

int64_t num_norm_partials(const Tiles& r);  // per matrix
struct TileScaleWork {
  double* partials = nullptr;
  double* scales = nullptr;  // one per matrix
};
// With s = factor·sqrt(|R|_F): X = X/s and R = R/s²; zeros stay. It takes any
// type of number.
void scale_by_norm(DType dtype, const Tiles& x, const Tiles& r, double factor,
                   const TileScaleWork& work, cudaStream_t stream);

// Lower triangles as members of a team exchange them (SharedAlgebra): row after
// row, without gaps. `square` is one matrix of numbers of `dtype`; putting
// writes both halves of it.
void launch_take_triangle(DType dtype, std::byte* triangle, const Tiles& square,
                          cudaStream_t stream);
void launch_put_triangle(DType dtype, const Tiles& square,
                         const std::byte* triangle, cudaStream_t stream);
// Rounded once, as products are.
void launch_round_sum(TileType type, std::byte* rounded, const float* sum,
                      int64_t count, cudaStream_t stream);

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

// The common base of both algebras: it allocates and loads operands, whose rows
// begin at multiples of `step` elements, and packs what members of a team
// exchange. The scalars of factors are zeros, because all that a member has to
// know beside Q follows from the calls.
class CudaAlgebra : public Algebra, public SharedAlgebra {
 public:
  CudaAlgebra(CudaEngine& engine, DType dtype, int64_t step)
      : engine_(engine), dtype_(dtype), step_(step) {}

  Operand wide(Arena& arena, int64_t rows, int64_t cols, int64_t count,
               bool tall, const Strips& strips) final;
  Operand symmetric(Arena& arena, int64_t rows, int64_t count) final;
  void load_normalized(Operand& x, const Load& load,
                       const Normalization& normalization) final;

  SharedAlgebra* shared() final { return this; }
  bool shares_gram_norm() const final { return false; }
  Operand part(Arena& arena, int64_t rows, int64_t cols, bool tall,
               const Strips& strips) final;
  void load_parts(Operand& x, const Load& load,
                  std::span<NormPart> parts) final;
  // Always true: squares of fp32 never leave the range of fp64, and those of
  // fp64 are scaled strip by strip.
  bool normalize(Operand& x, const Load& load, std::span<const NormPart> all,
                 const Normalization& normalization,
                 std::span<NormPart> parts) final;
  void take_gram(Operand& r, const std::byte* rounded) final;
  void put_factor(std::byte* factor, const Operand& q,
                  const Operand& x) override;
  void take_factor(Operand& q, Operand& x, const std::byte* factor,
                   double only_a) final;

 protected:
  Operand take(Arena& arena, const Operand& shape) const;
  StoredShape stored(const Operand& x) const { return stored_shape(x, step_); }
  // As numbers of dtype.
  Tiles tiles_of(const Operand& x) const;

  CudaEngine& engine_;
  const DType dtype_;
  const int64_t step_;
};

}  // namespace canzona
