#include "canzona/linalg/cuda/algebra/operand_load.h"

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/algebra/load.h"
#include "canzona/linalg/cuda/algebra/tile_stages.h"

namespace canzona {
namespace {

template <class Real>
BlendSource<Real> source_of(CudaEngine& engine, const Load& load) {
  BlendSource<Real> source;
  source.elements = load.source.elements();
  source.count = load.source.count;
  source.grads = device_places<const Real>(engine, load.source);
  if (load.momentum.data == nullptr) return source;
  source.momenta = device_places<Real>(engine, load.momentum);
  source.blend =
      engine.push<double>({load.blend.keep, load.blend.add,
                           load.blend.from_grad, load.blend.from_momentum});
  return source;
}

template <class Real>
void load_typed(CudaEngine& engine, const Operand& x, const StoredShape& shape,
                DType dtype, const Load& load, const Normalization& by) {
  Arena& arena = engine.arena();
  const Arena::Scope scope(arena);
  const BlendSource<Real> source = source_of<Real>(engine, load);
  ScaleWork work;
  work.slots =
      arena.take_array<double>(source.count * scale_slots(source.elements));
  work.peaks = arena.take_array<double>(source.count);
  work.scales = arena.take_array<double>(source.count);
  if (engine.dry("load", load.source.dtype, x.storage, work.slots, shape.cols,
                 shape.row_stride, source.elements, source.count,
                 source.momenta != nullptr, static_cast<int>(dtype), by.factor,
                 by.epsilon, by.add_epsilon))
    return;
  launch_scales(source, {by.factor, by.epsilon, by.add_epsilon}, work,
                engine.stream());
  launch_load(
      source, work.scales,
      {x.storage, dtype, shape.cols, shape.row_stride, shape.matrix_stride()},
      engine.stream());
}

void check_load(const Operand& x, const Load& load) {
  CANZONA_CHECK_EQ(load.source.rows, x.tall ? x.cols : x.rows, "rows");
  CANZONA_CHECK_EQ(load.source.cols, x.tall ? x.rows : x.cols, "columns");
  CANZONA_CHECK_EQ(load.source.count, x.count, "matrices");
  CANZONA_CHECK(load.transpose == x.tall && load.prescale == 1 &&
                    load.source.contiguous(),
                "a load that this operand cannot take");
  if (load.momentum.data == nullptr) return;
  CANZONA_CHECK(load.momentum.rows == load.source.rows &&
                    load.momentum.cols == load.source.cols &&
                    load.momentum.count == load.source.count &&
                    load.momentum.contiguous(),
                "a momentum of another shape");
}

}  // namespace

StoredShape stored_shape(const Operand& x, int64_t step) {
  const int64_t rows = x.tall ? x.cols : x.rows;
  const int64_t cols = x.tall ? x.rows : x.cols;
  return {rows, cols, (cols + step - 1) / step * step};
}

Operand take_operand(Arena& arena, const Operand& shape, int64_t step,
                     DType dtype) {
  CANZONA_CHECK(shape.rows <= shape.cols, shape.rows, "x", shape.cols,
                " is not wide");
  Operand x = shape;
  x.storage = arena.take(x.count * stored_shape(x, step).matrix_stride() *
                         size_of(dtype));
  return x;
}

void load_operand(CudaEngine& engine, const Operand& x,
                  const StoredShape& shape, DType dtype, const Load& load,
                  const Normalization& normalization) {
  check_load(x, load);
  if (load.source.dtype == DType::kFp64)
    load_typed<double>(engine, x, shape, dtype, load, normalization);
  else
    load_typed<float>(engine, x, shape, dtype, load, normalization);
}

void normalize_operand(CudaEngine& engine, const Operand& x,
                       const StoredShape& x_shape, const Operand& r,
                       const StoredShape& r_shape, bool r_folded, DType dtype,
                       double factor) {
  const auto tiles = [](const Operand& operand, const StoredShape& shape) {
    return Tiles{operand.storage,  shape.rows,    shape.cols,
                 shape.row_stride, operand.count, shape.matrix_stride()};
  };
  Tiles gram = tiles(r, r_shape);
  gram.folded = r_folded;
  const Arena::Scope scope(engine.arena());
  TileScaleWork work;
  work.slots =
      engine.arena().take_array<double>(gram.count * tile_norm_slots(gram));
  work.scales = engine.arena().take_array<double>(gram.count);
  if (engine.dry("normalize_by_gram", dtype, x.tall, r.storage, x.storage,
                 work.slots, gram.rows, x.cols, gram.count, factor))
    return;
  scale_by_norm(dtype, tiles(x, x_shape), gram, factor, work, engine.stream());
}

}  // namespace canzona
