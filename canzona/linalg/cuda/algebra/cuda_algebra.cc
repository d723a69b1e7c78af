#include "canzona/base/check.h"
#include "canzona/linalg/cuda/algebra/algebra.h"
#include "canzona/linalg/cuda/algebra/strips.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/device.h"

namespace canzona {
namespace {

constexpr int64_t kScalarBytes =
    SharedAlgebra::kFactorScalars * static_cast<int64_t>(sizeof(double));

// A symmetric operand of which nothing is folded.
Tiles whole_tiles(const Operand& r, const StoredShape& shape) {
  return {r.storage,        shape.rows, shape.cols,
          shape.row_stride, r.count,    shape.matrix_stride()};
}

}  // namespace

StoredShape CudaAlgebra::stored(const Operand& x) const {
  StoredShape shape = stored_shape(x, step_);
  shape.apart = apart_ && !x.tall && x.strips.count > 1;
  return shape;
}

Operand CudaAlgebra::wide(Arena& arena, int64_t rows, int64_t cols,
                          int64_t count, bool tall, const Strips& strips) {
  CANZONA_CHECK(rows <= cols, rows, "x", cols, " is not wide");
  return take_operand(arena,
                      {.rows = rows,
                       .cols = cols,
                       .count = count,
                       .tall = tall,
                       .strips = strips},
                      step_, dtype_);
}

Operand CudaAlgebra::part(Arena& arena, int64_t rows, int64_t cols, bool tall,
                          const Strips& strips) {
  return take_operand(
      arena, {.rows = rows, .cols = cols, .tall = tall, .strips = strips},
      step_, dtype_);
}

Operand CudaAlgebra::symmetric(Arena& arena, int64_t rows, int64_t count) {
  return wide(arena, rows, rows, count, false, {});
}

void CudaAlgebra::load_normalized(Operand& x, const Load& load,
                                  const Normalization& normalization) {
  load_operand(engine_, x, stored(x), dtype_, load, normalization);
}

void CudaAlgebra::load_parts(Operand& x, const Load& load,
                             std::span<NormPart> parts) {
  CANZONA_CHECK_EQ(std::ssize(parts), x.strips.count, "strips");
  load_operand_parts(engine_, x, load, parts.data());
}

// Squares of fp32 are always in range, so nothing is loaded twice.
bool CudaAlgebra::normalize(Operand& x, const Load& load,
                            std::span<const NormPart> all,
                            const Normalization& normalization,
                            std::span<NormPart>) {
  load_operand(engine_, x, stored(x), dtype_, load, normalization, all);
  return true;
}

void CudaAlgebra::take_gram(Operand& r, const std::byte* rounded) {
  if (engine_.dry("take_triangle", dtype_, r.storage, rounded, r.rows)) return;
  launch_take_triangle(dtype_, rounded, whole_tiles(r, stored(r)),
                       engine_.stream());
}

void CudaAlgebra::put_factor(std::byte* factor, const Operand& q,
                             const Operand&) {
  if (engine_.dry("put_factor", dtype_, q.storage, factor, q.rows)) return;
  check_cuda(cudaMemsetAsync(factor, 0, kScalarBytes, engine_.stream()),
             "the scalars of a factor");
  launch_put_triangle(dtype_, whole_tiles(q, stored(q)), factor + kScalarBytes,
                      engine_.stream());
}

// What lies beside the triangle follows from the plan.
void CudaAlgebra::take_factor(Operand& q, Operand&, const std::byte* factor,
                              double only_a) {
  q.identity = dtype_ == DType::kBf16 ? only_a : 0;
  take_gram(q, factor + kScalarBytes);
}

}  // namespace canzona
