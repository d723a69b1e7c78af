#include "canzona/base/check.h"
#include "canzona/linalg/cuda/algebra/algebra.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/kernels.h"

namespace canzona::linalg {
namespace {

template <class Real>
BlendSource<Real> source_of(CudaEngine& engine, const Load& load) {
  BlendSource<Real> source;
  source.elements = load.source.elements();
  source.count = load.source.count;
  source.rows = load.source.rows;
  source.cols = load.source.cols;
  source.grads = moving_places<const Real>(engine, load.source);
  source.grad_skips = device_skips(engine, load.source);
  if (load.source.group_rows > 0)
    source.group =
        static_cast<uint32_t>(load.source.group_rows * load.source.cols);
  if (load.momentum.data == nullptr) return source;
  source.momenta = device_places<Real>(engine, load.momentum);
  source.momentum_skips = device_skips(engine, load.momentum);
  source.as_sent = load.as_sent;
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
  BlendSource<Real> source = source_of<Real>(engine, load);
  const bool in_strips = x.strips.count > 1;
  CANZONA_CHECK(!load.even_rows || !in_strips, "even rows in strips");
  const StripCuts cuts = StripCuts::of(x);
  EvenWork<Real> even;
  if (load.even_rows) {
    even.norms = arena.take_array<double>(source.count * source.rows);
    even.factors = arena.take_array<Real>(source.count * source.rows);
  }
  ScaleWork work;
  work.partials = arena.take_array<double>(
      source.count *
      (in_strips ? cuts.num_partials() : num_scale_partials(source.elements)));
  work.peaks = arena.take_array<double>(source.count * cuts.count);
  work.scales = arena.take_array<double>(source.count);
  NormPart* parts = in_strips
                        ? arena.take_array<NormPart>(source.count * cuts.count)
                        : nullptr;
  if (engine.dry("load", load.source.dtype, x.storage, work.partials,
                 shape.cols, shape.row_stride, source.elements, source.count,
                 source.momenta != nullptr, source.group,
                 load.source.skips != nullptr, load.momentum.skips != nullptr,
                 static_cast<int>(dtype), by.factor, by.epsilon, by.add_epsilon,
                 key_of(x), load.even_rows, load.even_floor, load.as_sent))
    return;
  const ScaleRule rule{by.factor, by.epsilon, by.add_epsilon};
  if (load.even_rows) {
    even.scales = work.scales;
    launch_even_scales(source, load.even_floor, rule, even, engine.stream());
    source.row_factors = even.factors;
  } else if (in_strips) {
    launch_parts(source, cuts, {work.partials, work.peaks, parts},
                 engine.stream());
    launch_scales_of_parts(parts, cuts.count, source.count, rule, work.scales,
                           engine.stream());
  } else {
    launch_scales(source, rule, work, engine.stream());
  }
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
  CANZONA_CHECK(load.source.group_rows == 0 ||
                    (load.source.group_rows % Algebra::kGroupRows == 0 &&
                     load.source.elements() <= UINT32_MAX),
                "groups of ", load.source.group_rows, " rows");
  if (load.momentum.data == nullptr) return;
  CANZONA_CHECK(load.momentum.rows == load.source.rows &&
                    load.momentum.cols == load.source.cols &&
                    load.momentum.count == load.source.count &&
                    load.momentum.group_rows == load.source.group_rows &&
                    load.momentum.contiguous(),
                "a momentum of another shape");
}

template <class Real>
void tell_parts(CudaEngine& engine, const Operand& x, const Load& load,
                NormPart* parts) {
  Arena& arena = engine.arena();
  const Arena::Scope scope(arena);
  const BlendSource<Real> source = source_of<Real>(engine, load);
  const StripCuts cuts = StripCuts::of(x);
  PartWork work;
  work.partials = arena.take_array<double>(cuts.num_partials());
  work.peaks = arena.take_array<double>(cuts.count);
  work.parts = parts;
  if (engine.dry("load_parts", load.source.dtype, work.partials, parts, x.rows,
                 x.cols, key_of(x)))
    return;
  launch_parts(source, cuts, work, engine.stream());
}

template <class Real>
void load_by_parts(CudaEngine& engine, const Operand& x,
                   const StoredShape& shape, DType dtype, const Load& load,
                   std::span<const NormPart> all, const Normalization& by) {
  Arena& arena = engine.arena();
  const Arena::Scope scope(arena);
  const BlendSource<Real> source = source_of<Real>(engine, load);
  auto* scale = arena.take_array<double>(1);
  if (engine.dry("load_by_parts", load.source.dtype, x.storage, scale,
                 all.data(), all.size(), x.rows, x.cols, x.tall,
                 static_cast<int>(dtype), by.factor, by.epsilon,
                 by.add_epsilon))
    return;
  launch_scales_of_parts(all.data(), static_cast<int>(all.size()), 1,
                         {by.factor, by.epsilon, by.add_epsilon}, scale,
                         engine.stream());
  launch_load(
      source, scale,
      {x.storage, dtype, shape.cols, shape.row_stride, shape.matrix_stride()},
      engine.stream());
}

}  // namespace

int64_t key_of(const Operand& x) {
  int64_t key = 2 * x.strips.count + (x.tall ? 1 : 0);
  for (int s = 1; s < x.strips.count; ++s)
    key = key * 1000003 + x.strips.begin(s);
  return key;
}

StoredShape stored_shape(const Operand& x, int64_t step) {
  const int64_t rows = x.tall ? x.cols : x.rows;
  const int64_t cols = x.tall ? x.rows : x.cols;
  return {rows, cols, (cols + step - 1) / step * step};
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
  work.partials =
      engine.arena().take_array<double>(gram.count * num_norm_partials(gram));
  work.scales = engine.arena().take_array<double>(gram.count);
  if (engine.dry("normalize_by_gram", dtype, x.tall, r.storage, x.storage,
                 work.partials, gram.rows, x.cols, gram.count, factor))
    return;
  scale_by_norm(dtype, tiles(x, x_shape), gram, factor, work, engine.stream());
}

Operand CudaAlgebra::take(Arena& arena, const Operand& shape) const {
  Operand x = shape;
  x.storage = arena.take(x.count * stored(x).matrix_stride() * size_of(dtype_));
  return x;
}

Tiles CudaAlgebra::tiles_of(const Operand& x) const {
  const StoredShape shape = stored(x);
  return {x.storage,        shape.rows, shape.cols,
          shape.row_stride, x.count,    shape.matrix_stride()};
}

Operand CudaAlgebra::wide(Arena& arena, int64_t rows, int64_t cols,
                          int64_t count, bool tall, const Strips& strips) {
  CANZONA_CHECK(rows <= cols, rows, "x", cols, " is not wide");
  return take(arena, {.rows = rows,
                      .cols = cols,
                      .count = count,
                      .tall = tall,
                      .strips = strips});
}

Operand CudaAlgebra::symmetric(Arena& arena, int64_t rows, int64_t count) {
  return take(arena, {.rows = rows, .cols = rows, .count = count});
}

void CudaAlgebra::load_normalized(Operand& x, const Load& load,
                                  const Normalization& by) {
  check_load(x, load);
  with_real_type(load.source.dtype, [&]<class Real>(Real) {
    load_typed<Real>(engine_, x, stored(x), dtype_, load, by);
  });
}

Operand CudaAlgebra::part(Arena& arena, int64_t rows, int64_t cols, bool tall,
                          const Strips& strips) {
  return take(arena, {.rows = rows,
                      .cols = cols,
                      .tall = tall,
                      .strips = strips,
                      .is_part = true});
}

void CudaAlgebra::load_parts(Operand& x, const Load& load,
                             std::span<NormPart> parts) {
  check_load(x, load);
  CANZONA_CHECK(load.momentum.data == nullptr, "momentum of a part");
  with_real_type(load.source.dtype, [&]<class Real>(Real) {
    tell_parts<Real>(engine_, x, load, parts.data());
  });
}

bool CudaAlgebra::normalize(Operand& x, const Load& load,
                            std::span<const NormPart> all,
                            const Normalization& by, std::span<NormPart>) {
  with_real_type(load.source.dtype, [&]<class Real>(Real) {
    load_by_parts<Real>(engine_, x, stored(x), dtype_, load, all, by);
  });
  return true;
}

void CudaAlgebra::take_gram(Operand& r, const std::byte* rounded) {
  r.identity = 0;
  if (!engine_.dry("take_gram", dtype_, r.storage, rounded, r.rows))
    launch_put_triangle(dtype_, tiles_of(r), rounded, engine_.stream());
}

void CudaAlgebra::put_factor(std::byte* factor, const Operand& q,
                             const Operand&) {
  constexpr int64_t kScalarBytes = kFactorScalars * 8;
  engine_.set_zero(factor, kScalarBytes);
  if (!engine_.dry("put_factor", dtype_, factor, q.storage, q.rows))
    launch_take_triangle(dtype_, factor + kScalarBytes, tiles_of(q),
                         engine_.stream());
}

// In bf16 the factor of a single polynomial comes without the identity's share,
// which is `only_a`.
void CudaAlgebra::take_factor(Operand& q, Operand&, const std::byte* factor,
                              double only_a) {
  take_gram(q, factor + kFactorScalars * 8);
  q.identity = dtype_ == DType::kBf16 ? only_a : 0;
}

namespace {

// The kernels of triangles take any square as tiles.
template <class Views>
Tiles tiles_of_square(const Views& square) {
  return {const_cast<std::byte*>(square.data),
          square.rows,
          square.cols,
          square.row_stride,
          square.count,
          square.matrix_stride};
}

}  // namespace

void CudaEngine::take_triangle(Run triangle, ConstMatrices square) {
  CANZONA_CHECK_EQ(square.count, 1, "squares");
  if (!dry("take_triangle", triangle.data, square))
    launch_take_triangle(square.dtype, triangle.data, tiles_of_square(square),
                         stream());
}

void CudaEngine::put_triangle(Matrices square, ConstRun triangle) {
  CANZONA_CHECK_EQ(square.count, 1, "squares");
  if (!dry("put_triangle", square, triangle.data))
    launch_put_triangle(square.dtype, tiles_of_square(square), triangle.data,
                        stream());
}

namespace {

// Newton–Schulz in fp32 and fp64 by the engine's own products.
class PlainAlgebra final : public CudaAlgebra {
 public:
  PlainAlgebra(CudaEngine& engine, DType dtype)
      : CudaAlgebra(engine, dtype, 1) {}

  void normalize_by_gram(Operand& x, Operand& r, double factor) override {
    normalize_operand(engine_, x, stored(x), r, stored(r), false, dtype_,
                      factor);
  }

  void gram(Operand& r, const Operand& x, Half half) override {
    if (x.strips.count > 1) {
      add_strips(view(r), x, half);
      return launch_mirror(engine_, view(r));
    }
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

  // An update goes through scratch, because its rounding must not depend on
  // whether the product was stored first.
  void multiply_into(const Store& store, const Operand& q,
                     const Operand& x) override {
    CANZONA_CHECK(store.transpose == x.tall && store.out.contiguous() &&
                      store.out.dtype == dtype_,
                  "results go into contiguous matrices of the same type");
    if (store.apply == nullptr && store.out.places == nullptr)
      return multiply_view(store.out, q, x);
    const Arena::Scope scope(engine_.arena());
    const Operand o = take(engine_.arena(), x);
    multiply_view(view(o), q, x);
    for (int64_t i = 0; i < x.count; ++i) put(store, view(o).at(i), i);
  }

  // The head mirrors Q before it packs it, so that it continues with the same
  // matrix that the members get.
  void put_factor(std::byte* factor, const Operand& q,
                  const Operand& x) override {
    launch_mirror(engine_, view(q));
    CudaAlgebra::put_factor(factor, q, x);
  }

  int64_t sum_bytes() const override { return size_of(dtype_); }
  int64_t rounded_bytes() const override { return size_of(dtype_); }

  void gram_sum(std::byte* sum, const Operand& x, Half half) override {
    const Arena::Scope scope(engine_.arena());
    const Operand r = symmetric(engine_.arena(), x.rows, 1);
    add_strips(view(r), x, half);
    if (!engine_.dry("gram_sum", dtype_, sum, r.storage, r.rows))
      launch_take_triangle(dtype_, sum, tiles_of(r), engine_.stream());
  }
  void round_sum(std::byte* rounded, const std::byte* sum, int64_t count,
                 const Operand&) override {
    engine_.copy(row_of(rounded, count), row_of(sum, count));
  }

 private:
  template <class Byte>
  BasicMatrices<Byte> row_of(Byte* data, int64_t count) const {
    return {data, dtype_, 1, count, count, 1, count, nullptr};
  }

  // Views x as it is stored: transposed if it came tall.
  Matrices view(const Operand& x) const {
    const StoredShape shape = stored(x);
    return {x.storage,
            dtype_,
            shape.rows,
            shape.cols,
            shape.cols,
            x.count,
            shape.matrix_stride(),
            nullptr};
  }

  // Returns a strip of `whole`, which is x as it is stored or a result like it.
  static Matrices strip_of(Matrices whole, const Operand& x, int strip) {
    const int64_t begin = x.strips.begin(strip);
    const int64_t width = x.strips.end(strip, x.cols) - begin;
    whole.data +=
        begin * (x.tall ? whole.row_stride : 1) * size_of(whole.dtype);
    (x.tall ? whole.rows : whole.cols) = width;
    return whole;
  }

  // R = X·Xᵀ, whose strips are added by the tree. Only the lower triangle is
  // sure to be defined.
  void add_strips(Matrices r, const Operand& x, Half half) {
    const Op op = x.tall ? Op::kTranspose : Op::kNone;
    const Op other = x.tall ? Op::kNone : Op::kTranspose;
    const Arena::Scope scope(engine_.arena());
    Matrices sums[Strips::kMostSums] = {r};
    for (int p = 1; p < TreeOrder::num_sums(x.strips.count); ++p)
      sums[p] = engine_.arena().matrices(dtype_, r.rows, r.cols, r.count);
    const auto form = [&](int s, int p) {
      const Matrices strip = strip_of(view(x), x, s);
      if (half == Half::kTriangle)
        engine_.lower_product(sums[p], 1, strip, op, 0);
      else
        engine_.product(sums[p], 1, strip, op, strip, other, 0);
    };
    TreeOrder::add(x.strips.count, form, [&](int to, int from) {
      engine_.axpby(sums[to], 1, sums[from], 1);
    });
  }

  // Every strip is a product of its own, as it is on a member that has no
  // other, because a library may round products of another width differently. Q
  // is mirrored because members get its lower half, and a Q that was computed
  // in full need not be symmetric to the last bit.
  void multiply_view(Matrices out, const Operand& q, const Operand& x) {
    if (x.strips.count > 1) launch_mirror(engine_, view(q));
    for (int s = 0; s < x.strips.count; ++s) {
      const Matrices strip = strip_of(view(x), x, s);
      const Matrices to = strip_of(out, x, s);
      if (x.tall)
        engine_.product(to, 1, strip, Op::kNone, view(q), Op::kNone, 0);
      else
        engine_.product(to, 1, view(q), Op::kNone, strip, Op::kNone, 0);
    }
  }

  void round_as_sent(const Matrices& update) {
    const Arena::Scope scope(engine_.arena());
    const Matrices sent =
        engine_.arena().matrices(DType::kBf16, update.rows, update.cols);
    engine_.convert(sent, update);
    engine_.convert(update, sent);
  }

  void put(const Store& store, const Matrices& update, int64_t i) {
    const Matrices to = store.out.at(i);
    if (store.apply == nullptr) return engine_.copy(to, update);
    if (store.as_sent) round_as_sent(update);
    const int64_t all = to.elements();
    const int64_t each = to.skips == nullptr ? all : to.group_rows * to.cols;
    const int64_t apart = each + (to.skips == nullptr ? 0 : *to.skips);
    const int64_t bytes = size_of(dtype_);
    for (int64_t at = 0, there = 0; at < all; at += each, there += apart)
      engine_.apply(
          {to.data + there * bytes, to.dtype},
          {update.data + at * bytes, update.dtype}, *store.apply, each,
          store.rounded == nullptr ? nullptr : store.rounded[i] + there);
  }
};

}  // namespace

std::unique_ptr<Algebra> make_plain_algebra(CudaEngine& engine, DType dtype) {
  return std::make_unique<PlainAlgebra>(engine, dtype);
}

}  // namespace canzona::linalg
