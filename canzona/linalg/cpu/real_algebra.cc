#include "canzona/linalg/cpu/cpu_algebra.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "canzona/base/check.h"
#include "canzona/linalg/cpu/blas.h"
#include "canzona/linalg/cpu/products.h"
#include "canzona/linalg/cpu/reductions.h"
#include "canzona/linalg/cpu/stages/stages.h"
#include "canzona/linalg/cpu/transpose.h"

namespace canzona::linalg {
namespace {

// A header precedes the elements of a wide operand.
struct alignas(64) Header {
  Arena* arena = nullptr;  // for scratch; lives as long as the operand
  bool tall = false;       // the elements are those of the transpose
};

Header& header_of(const Operand& x) {
  return *std::launder(reinterpret_cast<Header*>(x.storage));
}

template <class Real>
class RealAlgebra final : public CpuAlgebra {
 public:
  Operand wide(Arena& arena, int64_t rows, int64_t cols, int64_t count, bool,
               const Strips& strips) override {
    CANZONA_CHECK_EQ(count, 1, "matrices at a time");
    CANZONA_CHECK(rows <= cols, rows, "x", cols, " is not wide");
    return part(arena, rows, cols, false, strips);
  }
  Operand part(Arena& arena, int64_t rows, int64_t cols, bool,
               const Strips& strips) override {
    Operand x;
    x.rows = rows;
    x.cols = cols;
    x.strips = strips;
    x.storage = arena.take(static_cast<int64_t>(sizeof(Header)) +
                           rows * cols * static_cast<int64_t>(sizeof(Real)));
    new (x.storage) Header{&arena, false};
    return x;
  }

  Operand symmetric(Arena& arena, int64_t rows, int64_t count) override {
    CANZONA_CHECK_EQ(count, 1, "matrices at a time");
    Operand r;
    r.rows = rows;
    r.cols = rows;
    r.storage = arena.take(rows * rows * static_cast<int64_t>(sizeof(Real)));
    return r;
  }

  NormPart load_strip(Operand& x, const Load& load, int strip) override;

  void gram(Operand& r, const Operand& x, Half half) override {
    const auto alpha = static_cast<Real>(x.scale * x.scale);
    if (x.strips.count == 1) {
      strip_gram(square(r), alpha, x, 0, half);
    } else {
      add_strips(square(r), x, half);
      for (int64_t i = 0; i < r.rows; ++i) {
        Real* row = square(r).row(i);
        for (int64_t j = 0; j <= i; ++j) row[j] *= alpha;
      }
    }
    finish(r);
  }

  void polynomial(Operand& p, const Operand& r, double a, double b, double c,
                  Half half, Readers readers) override;

  void commuting_product(Operand& d, const Operand& a,
                         const Operand& b) override {
    product_lower(packing_, square(d), square(a), square(b));
    finish(d);
  }

  void sandwich(Operand& u, const Operand& p, const Operand& r,
                Operand& scratch) override {
    square_symmetric_lower(packing_, square(scratch), 1, square(p), 0);
    finish(scratch);
    commuting_product(u, r, scratch);
  }

  void multiply(Operand& y, const Operand& q, const Operand& x) override {
    header_of(y).tall = header_of(x).tall;
    y.scale = 1;
    for (int s = 0; s < x.strips.count; ++s)
      multiply_view(strip_view(y, s), header_of(x).tall, q, x, s);
  }

  void store_product(const Store& store, const Operand& q,
                     const Operand& x) override;

  double norm(const Operand& r) override {
    return frobenius_norm<Real>(square(r));
  }

  void rescale(Operand& r, double factor) override {
    const Run run = run_of(square(r).data);
    cpu_axpby(run, factor, run, 0, r.rows * r.cols);
  }

  int64_t sum_bytes() const override { return sizeof(Real); }
  int64_t rounded_bytes() const override { return sizeof(Real); }

  void gram_sum(std::byte* sum, const Operand& x, Half half) override {
    Arena& arena = *header_of(x).arena;
    const Arena::Scope scope(arena);
    const View<Real> r = scratch(arena, x.rows);
    add_strips(r, x, half);
    put_triangle(reinterpret_cast<Real*>(sum), r);
  }
  void round_sum(std::byte* rounded, const std::byte* sum, int64_t count,
                 const Operand& x) override {
    const auto alpha = static_cast<Real>(x.scale * x.scale);
    const auto* from = reinterpret_cast<const Real*>(sum);
    auto* to = reinterpret_cast<Real*>(rounded);
    for (int64_t i = 0; i < count; ++i) to[i] = from[i] * alpha;
  }
  void take_gram(Operand& r, const std::byte* rounded) override {
    take_triangle(square(r), reinterpret_cast<const Real*>(rounded));
    finish(r);
  }
  void put_factor(std::byte* factor, const Operand& q,
                  const Operand& x) override {
    const double scalars[kFactorScalars] = {1, 0, x.scale, 0};
    std::memcpy(factor, scalars, sizeof(scalars));
    put_triangle(reinterpret_cast<Real*>(factor + sizeof(scalars)), square(q));
  }
  void take_factor(Operand& q, Operand& x, const std::byte* factor,
                   double) override {
    double scalars[kFactorScalars];
    std::memcpy(scalars, factor, sizeof(scalars));
    take_gram(q, factor + sizeof(scalars));
    x.scale = scalars[2];
  }

 private:
  // The stored elements of a strip, which are the transpose's for a tall
  // source. Strips are consecutive, each laid out as if it were alone.
  static View<Real> strip_view(const Operand& x, int strip) {
    const int64_t begin = x.strips.begin(strip);
    const int64_t width = x.strips.end(strip, x.cols) - begin;
    auto* elements =
        reinterpret_cast<Real*>(x.storage + sizeof(Header)) + begin * x.rows;
    if (header_of(x).tall) return {elements, width, x.rows, x.rows};
    return {elements, x.rows, width, width};
  }

  // The part of a matrix, stored as a source or a result, that is a strip.
  template <class Number>
  static View<Number> part_of(View<Number> whole, bool tall, const Operand& x,
                              int strip) {
    const int64_t begin = x.strips.begin(strip);
    const int64_t width = x.strips.end(strip, x.cols) - begin;
    return tall ? whole.block(begin, 0, width, whole.cols)
                : whole.block(0, begin, whole.rows, width);
  }

  static View<Real> scratch(Arena& arena, int64_t rows) {
    return view_of<Real>(arena.matrices(DTypeOf<Real>::value, rows, rows));
  }

  static View<Real> square(const Operand& r) {
    return {reinterpret_cast<Real*>(r.storage), r.rows, r.rows, r.rows};
  }

  // Completes a symmetric result from its lower triangle.
  static void finish(Operand& r) {
    r.scale = 1;
    r.identity = 0;
    mirror_lower(square(r));
  }

  // R = alpha·X·Xᵀ of a strip, lower triangle only.
  static void strip_gram(View<Real> r, Real alpha, const Operand& x, int strip,
                         Half half) {
    const View<Real> view = strip_view(x, strip);
    const Op op = header_of(x).tall ? Op::kTranspose : Op::kNone;
    const Op other = header_of(x).tall ? Op::kNone : Op::kTranspose;
    if (half == Half::kTriangle)
      square_lower(r, alpha, view, op, 0);
    else
      product(r, alpha, view, op, view, other, 0);
  }

  // Adds them by the tree.
  static void add_strips(View<Real> r, const Operand& x, Half half) {
    Arena& arena = *header_of(x).arena;
    const Arena::Scope scope(arena);
    View<Real> sums[Strips::kMostSums] = {r};
    for (int p = 1; p < TreeOrder::num_sums(x.strips.count); ++p)
      sums[p] = scratch(arena, x.rows);
    TreeOrder::add(
        x.strips.count,
        [&](int s, int p) { strip_gram(sums[p], 1, x, s, half); },
        [&](int to, int from) {
          for (int64_t i = 0; i < x.rows; ++i) {
            Real* left = sums[to].row(i);
            const Real* right = sums[from].row(i);
            for (int64_t j = 0; j <= i; ++j) left[j] += right[j];
          }
        });
  }

  static void put_triangle(Real* triangle, View<Real> from) {
    for (int64_t i = 0; i < from.rows; triangle += ++i)
      std::copy_n(from.row(i), i + 1, triangle);
  }
  static void take_triangle(View<Real> to, const Real* triangle) {
    for (int64_t i = 0; i < to.rows; triangle += ++i)
      std::copy_n(triangle, i + 1, to.row(i));
  }

  // out = Q·X of a strip, or its transpose.
  static void multiply_view(View<Real> out, bool transposed, const Operand& q,
                            const Operand& x, int strip) {
    const auto alpha = static_cast<Real>(x.scale);
    const View<Real> view = strip_view(x, strip);
    const Op op = transposed == header_of(x).tall ? Op::kNone : Op::kTranspose;
    if (transposed)
      product(out, alpha, view, op, square(q), Op::kNone, 0);
    else
      product(out, alpha, square(q), Op::kNone, view, op, 0);
  }

  static NormPart load_view(View<Real> to, const Load& load,
                            ConstView<Real> source, View<Real> momentum);
  static void load_rows(const Load& load, Real* to, ConstView<Real> source,
                        View<Real> momentum);

  PackingRoom packing_;
};

template <class Real>
NormPart RealAlgebra<Real>::load_strip(Operand& x, const Load& load,
                                       int strip) {
  CANZONA_CHECK_EQ(load.source.rows, load.transpose ? x.cols : x.rows, "rows");
  CANZONA_CHECK_EQ(load.source.cols, load.transpose ? x.rows : x.cols,
                   "columns");
  x.scale = 1;
  header_of(x).tall = load.transpose;
  View<Real> momentum;
  if (load.momentum.data != nullptr)
    momentum = part_of(view_of<Real>(load.momentum), load.transpose, x, strip);
  return load_view(
      strip_view(x, strip), load,
      part_of(view_of<Real>(load.source), load.transpose, x, strip), momentum);
}

// Processes groups of rows, so that what a group has stored is summed while it
// is in cache.
template <class Real>
NormPart RealAlgebra<Real>::load_view(View<Real> to, const Load& load,
                                      ConstView<Real> source,
                                      View<Real> momentum) {
  constexpr int64_t kGroupElements = 4096;
  const int64_t group =
      std::max<int64_t>(1, kGroupElements / std::max<int64_t>(1, to.cols));
  double sum = 0;
  for (int64_t begin = 0; begin < to.rows; begin += group) {
    const int64_t rows = std::min(group, to.rows - begin);
    const int64_t count = rows * to.cols;
    load_rows(load, to.row(begin), source.block(begin, 0, rows, to.cols),
              momentum.data == nullptr
                  ? momentum
                  : momentum.block(begin, 0, rows, to.cols));
    if (load.prescale != 1) {
      const Run run = run_of(to.row(begin));
      cpu_axpby(run, load.prescale, run, 0, count);
    }
    sum += sum_of_squares(to.row(begin), count);
  }
  // Squares of fp32 never leave the range of fp64; those of fp64 may.
  const bool safe = sum > 1e-200 && sum < 1e200;
  if (std::is_same_v<Real, float> || safe) return {sum, std::sqrt(sum)};
  return {sum, frobenius_norm<Real>(to)};
}

template <class Real>
void RealAlgebra<Real>::load_rows(const Load& load, Real* to,
                                  ConstView<Real> source, View<Real> momentum) {
  const bool blends = momentum.data != nullptr;
  const bool flat = source.stride == source.cols &&
                    (!blends || momentum.stride == momentum.cols);
  const int64_t piece = flat ? source.rows * source.cols : source.cols;
  for (int64_t i = 0; i < source.rows; i += flat ? source.rows : 1) {
    Real* out = to + i * source.cols;
    if (!blends) {
      std::memcpy(out, source.row(i),
                  static_cast<size_t>(piece) * sizeof(Real));
      continue;
    }
    Engine::MomentumStage stage;
    stage.grad = run_of(source.row(i));
    stage.momentum = run_of(momentum.row(i));
    stage.out = run_of(out);
    stage.blend = load.blend;
    cpu_momentum(stage, piece);
  }
}

template <class Real>
void RealAlgebra<Real>::polynomial(Operand& p, const Operand& r, double a,
                                   double b, double c, Half half, Readers) {
  CANZONA_CHECK(p.storage != r.storage && r.identity == 0);
  const View<Real> to = square(p);
  const View<Real> from = square(r);
  const auto gamma = static_cast<Real>(c);
  if (c == 0) {
    cpu_axpby(run_of(to.data), b, run_of(from.data), 0, to.rows * to.cols);
  } else if (half == Half::kFull) {
    cpu_axpby(run_of(to.data), b, run_of(from.data), 0, to.rows * to.cols);
    product(to, gamma, from, Op::kNone, from, Op::kNone, 1);
  } else {
    // Copying b·R saves the library a pass of its own.
    for (int64_t i = 0; i < to.rows; ++i)
      cpu_axpby(run_of(to.row(i)), b, run_of(from.row(i)), 0, i + 1);
    square_symmetric_lower(packing_, to, gamma, from, 1);
  }
  for (int64_t i = 0; i < to.rows; ++i) to.row(i)[i] += static_cast<Real>(a);
  finish(p);
}

// The rounding of the weights must not depend on whether the product was stored
// first, so it always is, in scratch.
template <class Real>
void RealAlgebra<Real>::store_product(const Store& store, const Operand& q,
                                      const Operand& x) {
  const View<Real> out = view_of<Real>(store.out);
  Arena& arena = *header_of(x).arena;
  Arena::Scope scope(arena);
  const View<Real> update =
      store.apply == nullptr ? out
                             : view_of<Real>(arena.matrices(
                                   DTypeOf<Real>::value, out.rows, out.cols));
  for (int s = 0; s < x.strips.count; ++s)
    multiply_view(part_of(update, store.transpose, x, s), store.transpose, q, x,
                  s);
  if (store.apply == nullptr) return;
  for (int64_t i = 0; i < out.rows; ++i)
    cpu_apply(run_of(out.row(i)), run_of(update.row(i)), *store.apply,
              out.cols);
}

}  // namespace

template <class Real>
std::unique_ptr<CpuAlgebra> make_real_algebra() {
  begin_blas();
  return std::make_unique<RealAlgebra<Real>>();
}

template std::unique_ptr<CpuAlgebra> make_real_algebra<float>();
template std::unique_ptr<CpuAlgebra> make_real_algebra<double>();

}  // namespace canzona::linalg
