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

namespace canzona::linalg {

// Fills the operands of Newton–Schulz on a GPU. Momentum, Nesterov's blend,
// norm and cast share two passes instead of taking one each.
//
//   launch_scales(source, normalization, work, stream);  // changes no state
//   launch_load(source, work.scales, target, stream);
//
// The norm comes first, because it is needed before the numbers are rounded to
// 16 bits; it is that of the blend, which the second pass computes again. Sums
// are in fp64, over chunks that only the shape decides, and are added in order.
// All pointers are of the device. Calls are asynchronous; any thread may call,
// for its current device.

// Describes `count` contiguous matrices of `elements` each, at any addresses.
// Without momenta the gradients are taken as they are.
template <class Real>
struct BlendSource {
  const Real* const* grads = nullptr;
  Real* const* momenta = nullptr;
  const double* blend = nullptr;  // keep, add, from_grad, from_momentum
  int64_t elements = 0;
  int64_t count = 0;
  // Factors of the blend's rows, matrix after matrix; null: none.
  const Real* row_factors = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  bool as_sent = false;  // blends are rounded to bf16
  // Elements of a group of rows, and those between two groups, one number per
  // matrix; null: none (BasicMatrices::skips).
  uint32_t group = 1;
  const int64_t* grad_skips = nullptr;
  const int64_t* momentum_skips = nullptr;
};

struct ScaleRule {
  double factor = 1;
  double epsilon = 0;
  bool add_epsilon = false;
};

// The scratch of launch_scales has num_scale_partials() sums or maxima per
// matrix, and its results, one per matrix.
int64_t num_scale_partials(int64_t elements);
struct ScaleWork {
  double* partials = nullptr;
  double* peaks = nullptr;   // powers of two; one per matrix
  double* scales = nullptr;  // one over the enlarged norm; 0 for zeros
};

template <class Real>
void launch_scales(const BlendSource<Real>& source, const ScaleRule& rule,
                   const ScaleWork& work, cudaStream_t stream);

// The same for rows that get equal norms (LineFactors::Kind::kEven), and their
// factors. Squares must be in the range of fp64.
template <class Real>
struct EvenWork {
  double* norms = nullptr;  // of all rows
  Real* factors = nullptr;
  double* scales = nullptr;
};
template <class Real>
void launch_even_scales(const BlendSource<Real>& source, double floor,
                        const ScaleRule& rule, const EvenWork<Real>& work,
                        cudaStream_t stream);

// The same by strips. launch_parts computes each strip's part of the norm
// (NormPart), whose bits do not depend on the device where the strip lies;
// launch_scales_of_parts computes the scales from the parts of all strips. A
// part's `norm` is the power of two by which its numbers were multiplied before
// they were squared; only in fp64 can it differ from 1.
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

// Rows have `cols` elements and begin `row_stride` elements apart.
struct LoadTarget {
  std::byte* data = nullptr;
  DType dtype = DType::kFp16;
  int64_t cols = 0;
  int64_t row_stride = 0;
  int64_t matrix_stride = 0;
};

// target = blend·scale, rounded to the target's type; the momenta advance.
template <class Real>
void launch_load(const BlendSource<Real>& source, const double* scales,
                 const LoadTarget& target, cudaStream_t stream);

// How the operands of a GPU's algebras are stored and loaded.

// A wide operand keeps the orientation in which it came.
struct StoredShape {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;

  int64_t matrix_stride() const { return rows * row_stride; }
};
// Rows begin at multiples of `step` elements.
StoredShape stored_shape(const Operand& x, int64_t step);

// Returns a table on the device of the addresses where the matrices of a batch
// begin, whether one after another or scattered. It is valid for the launches
// of the current call.
template <class Real, class Byte>
Real* const* device_places(CudaEngine& engine,
                           const BasicMatrices<Byte>& matrices) {
  std::vector<Real*> places;
  places.reserve(static_cast<size_t>(matrices.count));
  for (int64_t i = 0; i < matrices.count; ++i)
    places.push_back(reinterpret_cast<Real*>(matrices.at(i).data));
  return engine.table(places);
}

// Does the same for matrices that may begin elsewhere at each repetition.
template <class Real, class Byte>
Real* const* moving_places(CudaEngine& engine,
                           const BasicMatrices<Byte>& matrices) {
  std::vector<Real*> places;
  places.reserve(static_cast<size_t>(matrices.count));
  for (int64_t i = 0; i < matrices.count; ++i)
    places.push_back(reinterpret_cast<Real*>(matrices.at(i).data));
  return engine.moving_table(std::span<Real* const>(places));
}

// Returns the skips of a batch on the device, null if it has none.
template <class Byte>
const int64_t* device_skips(CudaEngine& engine,
                            const BasicMatrices<Byte>& matrices) {
  if (matrices.skips == nullptr) return nullptr;
  const auto count = static_cast<size_t>(matrices.count);
  return engine.table(std::span(matrices.skips, count));
}

// Returns a number that identifies the cuts of an operand, for CudaEngine::dry.
int64_t key_of(const Operand& x);

// Scales X and its Gram matrix R as Algebra::normalize_by_gram says. A folded R
// has nothing above its diagonal blocks (Tiles).
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

void launch_add_diagonal(TileType type, const Tiles& d, float value,
                         cudaStream_t stream);

// Writes the mirrored lower triangles of 16-bit squares into the upper ones.
void launch_mirror_tiles(const Tiles& squares, cudaStream_t stream);

// Stores 16-bit results in fp32 matrices or, with scalars, applies them to
// weights as a product is. Copies, if there are any, are in bf16.
void launch_tile_store(TileType type, const Tiles& x,
                       const TileWeights& weights, cudaStream_t stream);

int64_t num_norm_partials(const Tiles& r);  // per matrix
struct TileScaleWork {
  double* partials = nullptr;
  double* scales = nullptr;  // one per matrix
};
// With s = factor·sqrt(|R|_F): X = X/s and R = R/s². Zeros stay zeros. Any type
// of number is allowed.
void scale_by_norm(DType dtype, const Tiles& x, const Tiles& r, double factor,
                   const TileScaleWork& work, cudaStream_t stream);

// Copy a lower triangle out of a square and into it. Members of a team exchange
// triangles (SharedAlgebra) row after row, without gaps. `square` is one matrix
// of numbers of `dtype`; putting writes both of its halves.
void launch_take_triangle(DType dtype, std::byte* triangle, const Tiles& square,
                          cudaStream_t stream);
void launch_put_triangle(DType dtype, const Tiles& square,
                         const std::byte* triangle, cudaStream_t stream);
// Rounds each sum once, as products do.
void launch_round_sum(TileType type, std::byte* rounded, const float* sum,
                      int64_t count, cudaStream_t stream);

// Newton–Schulz on a GPU.
//
//   std::unique_ptr<Algebra> fp16 = make_cuda_algebra(engine, DType::kFp16);
//
// Products use tensor cores in 16 bits (tile_product.h), and the engine's own
// products in fp32 and fp64. A matrix that came transposed stays transposed,
// and products take it from the other side; identities are added to the
// diagonal unless bf16 keeps them apart (Operand::identity). The engine must
// outlive the algebra. One thread at a time.
class CudaEngine;

std::unique_ptr<Algebra> make_cuda_algebra(CudaEngine& engine, DType dtype);

// The first serves 16 bits, the second fp32 and fp64.
std::unique_ptr<Algebra> make_tile_algebra(CudaEngine& engine, DType dtype);
std::unique_ptr<Algebra> make_plain_algebra(CudaEngine& engine, DType dtype);

// The common base of both algebras: it allocates and loads operands, whose rows
// begin at multiples of `step` elements, and packs what members of a team
// exchange. It writes zeros for the scalars of factors, because the calls tell
// a member all that it must know besides Q.
class CudaAlgebra : public Algebra, public SharedAlgebra {
 public:
  CudaAlgebra(CudaEngine& engine, DType dtype, int64_t step)
      : engine_(engine), dtype_(dtype), step_(step) {}

  Operand wide(Arena& arena, int64_t rows, int64_t cols, int64_t count,
               bool tall, const Strips& strips) final;
  Operand symmetric(Arena& arena, int64_t rows, int64_t count) final;
  void load_normalized(Operand& x, const Load& load,
                       const Normalization& normalization) final;
  bool loads_even_rows(const Operand& x) const final {
    return x.strips.count == 1;
  }
  bool rounds_as_sent() const final { return true; }
  bool takes_row_groups() const final { return true; }

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
  // Views an operand as numbers of dtype_.
  Tiles tiles_of(const Operand& x) const;

  CudaEngine& engine_;
  const DType dtype_;
  const int64_t step_;
};

}  // namespace canzona::linalg
