#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/algebra/algebra.h"
#include "canzona/linalg/cuda/algebra/strips.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/device.h"

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

StripSource strip_source(const Operand& x) {
  return {cuts_of(x), x.rows, x.cols, x.tall};
}

// The scales of what a load will see, by strips if there are any.
template <class Real>
void launch_load_scales(const BlendSource<Real>& source, const Operand& x,
                        const ScaleRule& rule, const ScaleWork& work,
                        NormPart* parts, cudaStream_t stream) {
  const int strips = x.strips.count;
  if (strips == 1) return launch_scales(source, rule, work, stream);
  const double* peaks = launch_peaks(source, work, stream);
  launch_strip_parts(source, strip_source(x), peaks, work.slots, parts, stream);
  launch_strip_scales(parts, strips, source.count, peaks, rule, work.scales,
                      stream);
}

template <class Real>
void load_typed(CudaEngine& engine, const Operand& x, const StoredShape& shape,
                DType dtype, const Load& load, const Normalization& by,
                std::span<const NormPart> known) {
  Arena& arena = engine.arena();
  const Arena::Scope scope(arena);
  const BlendSource<Real> source = source_of<Real>(engine, load);
  const ScaleRule rule{by.factor, by.epsilon, by.add_epsilon};
  const int strips = x.strips.count;
  ScaleWork work;
  work.slots = arena.take_array<double>(
      std::max(source.count * scale_slots(source.elements),
               strips > 1 ? strip_slots(strip_source(x), source.count) : 0));
  work.peaks = arena.take_array<double>(source.count);
  work.scales = arena.take_array<double>(source.count);
  NormPart* parts =
      strips > 1 ? arena.take_array<NormPart>(source.count * strips) : nullptr;
  if (engine.dry("load", load.source.dtype, x.storage, work.slots, shape.cols,
                 shape.row_stride, source.elements, source.count,
                 source.momenta != nullptr, static_cast<int>(dtype), by.factor,
                 by.epsilon, by.add_epsilon, strips, known.data()))
    return;
  if (known.empty())
    launch_load_scales(source, x, rule, work, parts, engine.stream());
  else
    launch_strip_scales(known.data(), static_cast<int>(known.size()), 1,
                        nullptr, rule, work.scales, engine.stream());
  launch_load(source, work.scales,
              {x.storage, dtype, shape.rows, shape.cols, shape.row_stride,
               shape.matrix_stride(), shape.apart ? cuts_of(x) : StripCuts{}},
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
  Operand x = shape;
  x.storage = arena.take(x.count * stored_shape(x, step).matrix_stride() *
                         size_of(dtype));
  return x;
}

void load_operand(CudaEngine& engine, const Operand& x,
                  const StoredShape& shape, DType dtype, const Load& load,
                  const Normalization& normalization,
                  std::span<const NormPart> parts) {
  check_load(x, load);
  if (load.source.dtype == DType::kFp64)
    load_typed<double>(engine, x, shape, dtype, load, normalization, parts);
  else
    load_typed<float>(engine, x, shape, dtype, load, normalization, parts);
}

void load_operand_parts(CudaEngine& engine, const Operand& x, const Load& load,
                        NormPart* parts) {
  check_load(x, load);
  Arena& arena = engine.arena();
  const Arena::Scope scope(arena);
  const BlendSource<float> source = source_of<float>(engine, load);
  const StripSource at = strip_source(x);
  auto* slots = arena.take_array<double>(strip_slots(at, 1));
  if (!engine.dry("load_parts", x.storage, slots, parts, source.elements,
                  x.strips.count))
    launch_strip_parts(source, at, nullptr, slots, parts, engine.stream());
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

// Newton–Schulz in fp32 and fp64 by the engine's own products. Libraries choose
// their ways by how operands lie, so strips lie as if each were alone.
class PlainAlgebra final : public CudaAlgebra {
 public:
  PlainAlgebra(CudaEngine& engine, DType dtype)
      : CudaAlgebra(engine, dtype, /*step=*/1, /*apart=*/true) {}

  void normalize_by_gram(Operand& x, Operand& r, double factor) override {
    normalize_operand(engine_, x, stored_shape(x, 1), r, stored_shape(r, 1),
                      false, dtype_, factor);
  }

  void gram(Operand& r, const Operand& x, Half half) override {
    const Arena::Scope scope(engine_.arena());
    add_strips(view(r), x, half);
  }

  void gram_sum(std::byte* sum, const Operand& x, Half half) override {
    const Arena::Scope scope(engine_.arena());
    const Operand r = symmetric(engine_.arena(), x.rows, x.count);
    add_strips(view(r), x, half);
    if (!engine_.dry("gram_sum", r.storage, sum, r.rows))
      launch_put_triangle(dtype_, tiles_of(r), sum, engine_.stream());
  }
  // It has them already.
  void round_sum(std::byte* rounded, const std::byte* sum, int64_t count,
                 const Operand&) override {
    if (!engine_.dry("round_sum", rounded, sum, count))
      check_cuda(cudaMemcpyAsync(rounded, sum,
                                 static_cast<size_t>(count) * sizeof(float),
                                 cudaMemcpyDeviceToDevice, engine_.stream()),
                 "a copy of a sum");
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
    for (int s = 0; s < x.strips.count; ++s)
      multiply_strip(strip_view(y, s), q, x, s);
  }

  // The weights' own rounding must not depend on whether the product was
  // stored first, so it is, in scratch; and so are strips.
  void multiply_into(const Store& store, const Operand& q,
                     const Operand& x) override {
    CANZONA_CHECK(store.transpose == x.tall && store.out.contiguous() &&
                      store.out.dtype == dtype_,
                  "results go into contiguous matrices of the same type");
    if (store.apply == nullptr && store.out.places == nullptr &&
        x.strips.count == 1)
      return multiply_strip(store.out, q, x, 0);
    const Arena::Scope scope(engine_.arena());
    Operand o = take_operand(engine_.arena(), x, 1, dtype_);
    multiply(o, q, x);
    if (stored(o).apart) o = strips_together(o);
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
  Matrices strip_view(const Operand& x, int strip) const {
    const int64_t begin = x.strips.begin(strip);
    const int64_t width = x.strips.end(strip, x.cols) - begin;
    Matrices part = view(x);
    part.data += begin * x.rows * size_of(dtype_);
    (x.tall ? part.rows : part.cols) = width;
    part.row_stride = part.cols;
    return part;
  }
  Tiles tiles_of(const Operand& r) const {
    const Matrices all = view(r);
    return {all.data,       all.rows,  all.cols,
            all.row_stride, all.count, all.matrix_stride};
  }

  // A wide matrix whose rows are whole again.
  Operand strips_together(const Operand& x) {
    const Operand whole = take_operand(engine_.arena(), x, 1, dtype_);
    for (int s = 0; s < x.strips.count; ++s) {
      const Matrices from = strip_view(x, s);
      Matrices to = view(whole);
      to.data += x.strips.begin(s) * size_of(dtype_);
      to.cols = from.cols;
      engine_.copy(to, from);
    }
    return whole;
  }

  void strip_gram(Matrices r, const Operand& x, int strip, Half half) {
    const Matrices part = strip_view(x, strip);
    const Op op = x.tall ? Op::kTranspose : Op::kNone;
    const Op other = x.tall ? Op::kNone : Op::kTranspose;
    if (half == Half::kTriangle)
      engine_.symmetric_product(r, 1, part, op, 0);
    else
      engine_.product(r, 1, part, op, part, other, 0);
  }

  // The sum of them by the tree; scratch is the arena's.
  void add_strips(Matrices r, const Operand& x, Half half) {
    Matrices places[TreeOrder::kPlaces] = {r};
    for (int p = 1; p <= TreeOrder::place(x.strips.count - 1); ++p)
      places[p] = view(symmetric(engine_.arena(), x.rows, x.count));
    for (int s = 0; s < x.strips.count; ++s) {
      int p = TreeOrder::place(s);
      strip_gram(places[p], x, s, half);
      for (; p > TreeOrder::last(s); --p)
        engine_.axpby(places[p - 1], 1, places[p], 1);
    }
  }

  void multiply_strip(Matrices out, const Operand& q, const Operand& x,
                      int strip) {
    const Matrices part = strip_view(x, strip);
    if (x.tall)
      engine_.product(out, 1, part, Op::kNone, view(q), Op::kNone, 0);
    else
      engine_.product(out, 1, view(q), Op::kNone, part, Op::kNone, 0);
  }

  void put(const Store& store, const Matrices& update, int64_t i) {
    const Matrices to = store.out.at(i);
    if (store.apply == nullptr) return engine_.copy(to, update);
    engine_.apply({to.data, to.dtype}, {update.data, update.dtype},
                  *store.apply, to.elements(),
                  store.rounded == nullptr ? nullptr : store.rounded[i]);
  }
};

}  // namespace

std::unique_ptr<Algebra> make_plain_algebra(CudaEngine& engine, DType dtype) {
  return std::make_unique<PlainAlgebra>(engine, dtype);
}

}  // namespace canzona
