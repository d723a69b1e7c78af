#include "canzona/base/check.h"
#include "canzona/linalg/cuda/algebra/algebra.h"
#include "canzona/linalg/cuda/cuda_engine.h"

namespace canzona {
namespace {

template <class Real>
BlendSource<Real> source_of(CudaEngine& engine, const Load& load) {
  BlendSource<Real> source;
  source.elements = load.source.elements();
  source.count = load.source.count;
  source.grads = moving_places<const Real>(engine, load.source);
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

namespace {

// Newton–Schulz in fp32 and fp64 by the engine's own products.
class PlainAlgebra final : public Algebra {
 public:
  PlainAlgebra(CudaEngine& engine, DType dtype)
      : engine_(engine), dtype_(dtype) {}

  Operand wide(Arena& arena, int64_t rows, int64_t cols, int64_t count,
               bool tall, const Strips& strips) override {
    return take_operand(arena,
                        {.rows = rows,
                         .cols = cols,
                         .count = count,
                         .tall = tall,
                         .strips = strips},
                        1, dtype_);
  }
  Operand symmetric(Arena& arena, int64_t rows, int64_t count) override {
    return wide(arena, rows, rows, count, false, {});
  }

  void load_normalized(Operand& x, const Load& load,
                       const Normalization& normalization) override {
    load_operand(engine_, x, stored_shape(x, 1), dtype_, load, normalization);
  }

  void normalize_by_gram(Operand& x, Operand& r, double factor) override {
    normalize_operand(engine_, x, stored_shape(x, 1), r, stored_shape(r, 1),
                      false, dtype_, factor);
  }

  void gram(Operand& r, const Operand& x, Half half) override {
    const Op op = x.tall ? Op::kTranspose : Op::kNone;
    const Op other = x.tall ? Op::kNone : Op::kTranspose;
    if (half == Half::kTriangle)
      engine_.symmetric_product(view(r), 1, view(x), op, 0);
    else
      engine_.product(view(r), 1, view(x), op, view(x), other, 0);
  }

  void polynomial(Operand& p, const Operand& r, double a, double b, double c,
                  Half half, Readers) override {
    engine_.axpby(view(p), b, view(r), 0);
    if (c != 0 && half == Half::kTriangle)
      engine_.symmetric_product(view(p), c, view(r), Op::kNone, 1);
    if (c != 0 && half == Half::kFull)
      engine_.product(view(p), c, view(r), Op::kNone, view(r), Op::kNone, 1);
    engine_.add_diagonal(view(p), a);
  }

  void commuting_product(Operand& d, const Operand& a,
                         const Operand& b) override {
    engine_.commuting_product(view(d), view(a), view(b));
  }

  void sandwich(Operand& u, const Operand& p, const Operand& r,
                Operand& scratch) override {
    commuting_product(scratch, r, p);
    commuting_product(u, scratch, p);
  }

  void multiply(Operand& y, const Operand& q, const Operand& x) override {
    multiply_view(view(y), q, x);
  }

  // The weights' own rounding must not depend on whether the product was
  // stored first, so it is, in scratch.
  void multiply_into(const Store& store, const Operand& q,
                     const Operand& x) override {
    CANZONA_CHECK(store.transpose == x.tall && store.out.contiguous() &&
                      store.out.dtype == dtype_,
                  "results go into contiguous matrices of the same type");
    if (store.apply == nullptr && store.out.places == nullptr)
      return multiply_view(store.out, q, x);
    const Arena::Scope scope(engine_.arena());
    const Operand o =
        wide(engine_.arena(), x.rows, x.cols, x.count, x.tall, x.strips);
    multiply_view(view(o), q, x);
    for (int64_t i = 0; i < x.count; ++i) put(store, view(o).at(i), i);
  }

 private:
  // As stored, which is the transpose of what came tall.
  Matrices view(const Operand& x) const {
    const StoredShape shape = stored_shape(x, 1);
    return {x.storage,
            dtype_,
            shape.rows,
            shape.cols,
            shape.cols,
            x.count,
            shape.matrix_stride(),
            nullptr};
  }

  void multiply_view(Matrices out, const Operand& q, const Operand& x) {
    if (x.tall)
      engine_.product(out, 1, view(x), Op::kNone, view(q), Op::kNone, 0);
    else
      engine_.product(out, 1, view(q), Op::kNone, view(x), Op::kNone, 0);
  }

  void put(const Store& store, const Matrices& update, int64_t i) {
    const Matrices to = store.out.at(i);
    if (store.apply == nullptr) return engine_.copy(to, update);
    engine_.apply({to.data, to.dtype}, {update.data, update.dtype},
                  *store.apply, to.elements(),
                  store.rounded == nullptr ? nullptr : store.rounded[i]);
  }

  CudaEngine& engine_;
  DType dtype_;
};

}  // namespace

std::unique_ptr<Algebra> make_plain_algebra(CudaEngine& engine, DType dtype) {
  return std::make_unique<PlainAlgebra>(engine, dtype);
}

}  // namespace canzona
