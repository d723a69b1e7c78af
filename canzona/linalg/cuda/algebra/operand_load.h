// Fills an operand of an algebra of the GPU from where a Load says.
#pragma once

#include <vector>

#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/operand.h"

namespace canzona {

// How a wide operand lies in memory: as it came.
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

// Where the matrices of a batch begin, one after another or scattered, in a
// table on the device, for the launches of the present call.
template <class Real, class Byte>
Real* const* device_places(CudaEngine& engine,
                           const BasicMatrices<Byte>& matrices) {
  std::vector<Real*> places;
  places.reserve(static_cast<size_t>(matrices.count));
  for (int64_t i = 0; i < matrices.count; ++i)
    places.push_back(reinterpret_cast<Real*>(matrices.at(i).data));
  return engine.table(places);
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

}  // namespace canzona
