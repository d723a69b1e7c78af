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

namespace canzona {
namespace {

// A header lies before the elements of a wide operand.
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
  Operand wide(Arena& arena, int64_t rows, int64_t cols, int64_t count,
               bool) override {
    CANZONA_CHECK_EQ(count, 1, "matrices at a time");
    CANZONA_CHECK(rows <= cols, rows, "x", cols, " is not wide");
    Operand x;
    x.rows = rows;
    x.cols = cols;
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

  double load(Operand& x, const Load& load) override;

  void gram(Operand& r, const Operand& x, Half half) override {
    const auto alpha = static_cast<Real>(x.scale * x.scale);
    const Op op = header_of(x).tall ? Op::kTranspose : Op::kNone;
    const Op other = header_of(x).tall ? Op::kNone : Op::kTranspose;
    if (half == Half::kTriangle)
      square_lower(square(r), alpha, wide_view(x), op, 0);
    else
      product(square(r), alpha, wide_view(x), op, wide_view(x), other, 0);
    finish(r);
  }

  void polynomial(Operand& p, const Operand& r, double a, double b, double c,
                  Half half, Readers readers) override;

  void commuting_product(Operand& d, const Operand& a,
                         const Operand& b) override {
    product_lower(square(d), square(a), square(b));
    finish(d);
  }

  void sandwich(Operand& u, const Operand& p, const Operand& r,
                Operand& scratch) override {
    square_lower(square(scratch), 1, square(p), Op::kNone, 0);
    finish(scratch);
    commuting_product(u, r, scratch);
  }

  void multiply(Operand& y, const Operand& q, const Operand& x) override {
    header_of(y).tall = header_of(x).tall;
    y.scale = 1;
    multiply_view(wide_view(y), header_of(x).tall, q, x);
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

 private:
  // The stored elements, which are the transpose's for a tall source.
  static View<Real> wide_view(const Operand& x) {
    auto* elements = reinterpret_cast<Real*>(x.storage + sizeof(Header));
    if (header_of(x).tall) return {elements, x.cols, x.rows, x.rows};
    return {elements, x.rows, x.cols, x.cols};
  }

  static View<Real> square(const Operand& r) {
    return {reinterpret_cast<Real*>(r.storage), r.rows, r.rows, r.rows};
  }

  // Completes a symmetric result of which the lower triangle is there.
  static void finish(Operand& r) {
    r.scale = 1;
    r.identity = 0;
    mirror_lower(square(r));
  }

  // out = Q·X, or its transpose.
  static void multiply_view(View<Real> out, bool transposed, const Operand& q,
                            const Operand& x) {
    const auto alpha = static_cast<Real>(x.scale);
    const Op op = transposed == header_of(x).tall ? Op::kNone : Op::kTranspose;
    if (transposed)
      product(out, alpha, wide_view(x), op, square(q), Op::kNone, 0);
    else
      product(out, alpha, square(q), Op::kNone, wide_view(x), op, 0);
  }

  static void load_rows(const Load& load, Real* to, int64_t begin, int64_t end);
};

// Rows at a time, so that what a group has stored is summed while it is near.
template <class Real>
double RealAlgebra<Real>::load(Operand& x, const Load& load) {
  constexpr int64_t kGroupElements = 4096;
  CANZONA_CHECK_EQ(load.source.rows, load.transpose ? x.cols : x.rows, "rows");
  CANZONA_CHECK_EQ(load.source.cols, load.transpose ? x.rows : x.cols,
                   "columns");
  x.scale = 1;
  header_of(x).tall = load.transpose;
  const View<Real> to = wide_view(x);
  const int64_t group =
      std::max<int64_t>(1, kGroupElements / std::max<int64_t>(1, to.cols));
  double sum = 0;
  for (int64_t begin = 0; begin < to.rows; begin += group) {
    const int64_t end = std::min(begin + group, to.rows);
    const int64_t count = (end - begin) * to.cols;
    load_rows(load, to.row(begin), begin, end);
    if (load.prescale != 1) {
      const Run run = run_of(to.row(begin));
      cpu_axpby(run, load.prescale, run, 0, count);
    }
    sum += sum_of_squares(to.row(begin), count);
  }
  // Squares of fp32 never leave the range of fp64; those of fp64 may.
  const bool safe = sum > 1e-200 && sum < 1e200;
  if (std::is_same_v<Real, float> || safe) return std::sqrt(sum);
  return frobenius_norm<Real>(to);
}

template <class Real>
void RealAlgebra<Real>::load_rows(const Load& load, Real* to, int64_t begin,
                                  int64_t end) {
  const ConstView<Real> source = view_of<Real>(load.source);
  const bool blends = load.momentum.data != nullptr;
  const bool flat =
      load.source.contiguous() && (!blends || load.momentum.contiguous());
  const int64_t piece = flat ? (end - begin) * source.cols : source.cols;
  for (int64_t i = begin; i < end; i += flat ? end - begin : 1) {
    Real* out = to + (i - begin) * source.cols;
    if (!blends) {
      std::memcpy(out, source.row(i),
                  static_cast<size_t>(piece) * sizeof(Real));
      continue;
    }
    Engine::MomentumStage stage;
    stage.grad = run_of(source.row(i));
    stage.momentum = run_of(view_of<Real>(load.momentum).row(i));
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
    // b·R in the copy saves the library a pass of its own.
    for (int64_t i = 0; i < to.rows; ++i)
      cpu_axpby(run_of(to.row(i)), b, run_of(from.row(i)), 0, i + 1);
    square_lower(to, gamma, from, Op::kNone, 1);
  }
  for (int64_t i = 0; i < to.rows; ++i) to.row(i)[i] += static_cast<Real>(a);
  finish(p);
}

// The weights' own rounding must not depend on whether the product was stored
// first, so it is, in scratch.
template <class Real>
void RealAlgebra<Real>::store_product(const Store& store, const Operand& q,
                                      const Operand& x) {
  const View<Real> out = view_of<Real>(store.out);
  if (store.apply == nullptr) {
    multiply_view(out, store.transpose, q, x);
    return;
  }
  Arena& arena = *header_of(x).arena;
  Arena::Scope scope(arena);
  const View<Real> update =
      view_of<Real>(arena.matrices(DTypeOf<Real>::value, out.rows, out.cols));
  multiply_view(update, store.transpose, q, x);
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

}  // namespace canzona
