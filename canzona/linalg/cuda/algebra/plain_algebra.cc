#include "canzona/base/check.h"
#include "canzona/linalg/cuda/algebra/algebra.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/kernels.h"

namespace canzona {
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
    const Operand o = take(engine_.arena(), x);
    multiply_view(view(o), q, x);
    for (int64_t i = 0; i < x.count; ++i) put(store, view(o).at(i), i);
  }

  // The head goes on with what it hands out.
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

  // As stored, which is the transpose of what came tall.
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

  // A strip of x as it is stored, in x itself or in a result like it.
  static Matrices strip_of(Matrices whole, const Operand& x, int strip) {
    const int64_t begin = x.strips.begin(strip);
    const int64_t width = x.strips.end(strip, x.cols) - begin;
    whole.data +=
        begin * (x.tall ? whole.row_stride : 1) * size_of(whole.dtype);
    (x.tall ? whole.rows : whole.cols) = width;
    return whole;
  }

  // R = X·Xᵀ of strips, added by the tree: its lower triangle.
  void add_strips(Matrices r, const Operand& x, Half half) {
    const Op op = x.tall ? Op::kTranspose : Op::kNone;
    const Op other = x.tall ? Op::kNone : Op::kTranspose;
    const Arena::Scope scope(engine_.arena());
    Matrices places[TreeOrder::kPlaces] = {r};
    for (int p = 1; p <= TreeOrder::place(x.strips.count - 1); ++p)
      places[p] = engine_.arena().matrices(dtype_, r.rows, r.cols, r.count);
    for (int s = 0; s < x.strips.count; ++s) {
      const Matrices strip = strip_of(view(x), x, s);
      int p = TreeOrder::place(s);
      if (half == Half::kTriangle)
        engine_.lower_product(places[p], 1, strip, op, 0);
      else
        engine_.product(places[p], 1, strip, op, strip, other, 0);
      for (; p > TreeOrder::last(s); --p)
        engine_.axpby(places[p - 1], 1, places[p], 1);
    }
  }

  // A library may round products of other widths otherwise, so every strip is
  // one, as it is where it is alone. Members of a team get the lower half of Q;
  // one that was computed in full need not be symmetric to the last bit.
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
