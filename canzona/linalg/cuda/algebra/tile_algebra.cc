// Newton–Schulz in fp16 or bf16 with fp32 sums.

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/algebra/algebra.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/libraries.h"
#include "canzona/linalg/cuda/tiles/kernel_choice.h"
#include "canzona/linalg/cuda/tiles/tile_product.h"

namespace canzona::linalg {
namespace {

// The GPU's copy engine needs rows that begin at multiples of 8 elements.
constexpr int64_t kRowStep = 8;

class TileAlgebra : public CudaAlgebra {
 public:
  TileAlgebra(CudaEngine& engine, DType dtype, bool folds = true)
      : CudaAlgebra(engine, dtype, kRowStep),
        type_(dtype == DType::kBf16 ? TileType::kBf16 : TileType::kFp16),
        folds_(folds) {}

  void normalize_by_gram(Operand& x, Operand& r, double factor) override {
    normalize_operand(engine_, x, stored(x), r, stored(r), folds_, dtype_,
                      factor);
  }

  void gram(Operand& r, const Operand& x, Half half) override {
    const Arena::Scope scope(engine_.arena());
    square("gram", gram_product(x), r, {}, half, key_of(x));
  }

  void polynomial(Operand& p, const Operand& r, double a, double b, double c,
                  Half half, Readers readers) override {
    const double inside = identity_inside(p, a, readers);
    const Tiles tiles = square_tiles(r, half);
    TileAddend addend{tiles, static_cast<float>(b), static_cast<float>(inside)};
    if (c != 0)
      return square("polynomial", product_of(tiles, tiles, c), p, addend, half);
    line(p, r, b, inside);
  }

  void commuting_product(Operand& d, const Operand& a,
                         const Operand& b) override {
    square("commuting", product_of(square_tiles(a), square_tiles(b), 1), d, {},
           Half::kTriangle);
  }

  void sandwich(Operand& u, const Operand& p, const Operand& r,
                Operand& scratch) override {
    commuting_product(scratch, r, p);
    commuting_product(u, scratch, p);
  }

  void multiply(Operand& y, const Operand& q, const Operand& x) override {
    TileAddend addend;
    if (q.identity != 0)
      addend = {tiles_of(x), static_cast<float>(q.identity), 0};
    if (!engine_.dry("multiply", dtype_, y.storage, q.storage, x.storage,
                     x.rows, x.cols, x.count, x.tall, q.identity))
      tile_product(wide_product(q, x), tiles_of(y), addend, engine_.stream());
  }

  void multiply_into(const Store& store, const Operand& q,
                     const Operand& x) override {
    CANZONA_CHECK(store.transpose == x.tall && store.out.contiguous() &&
                      store.out.dtype == DType::kFp32,
                  "results of 16 bits go into contiguous fp32");
    if (q.identity != 0) return round_first(store, q, x);
    float* const* out = device_places<float>(engine_, store.out);
    if (store.apply == nullptr) {
      if (!engine_.dry("multiply_into", dtype_, q.storage, x.storage, x.rows,
                       x.cols, x.count, x.tall))
        tile_product_fp32(wide_product(q, x), out, engine_.stream());
      return;
    }
    apply_into(store, out, q, x);
  }

  int64_t sum_bytes() const override { return sizeof(float); }
  int64_t rounded_bytes() const override { return size_of(dtype_); }

  // One half of R is enough whatever is asked for, because both are equal.
  void gram_sum(std::byte* sum, const Operand& x, Half) override {
    Arena& arena = engine_.arena();
    const Arena::Scope scope(arena);
    const TileProduct product = gram_product(x);
    const Matrices r = arena.matrices(DType::kFp32, x.rows, x.rows);
    float* const* out = device_places<float>(engine_, r);
    if (engine_.dry("gram_sum", dtype_, sum, r.data, x.storage, x.rows, x.cols,
                    product.strips.scratch, key_of(x)))
      return;
    symmetric_tile_product_fp32(product, out, engine_.stream());
    launch_take_triangle(DType::kFp32, sum,
                         {r.data, r.rows, r.cols, r.row_stride, 1, 0},
                         engine_.stream());
  }
  void round_sum(std::byte* rounded, const std::byte* sum, int64_t count,
                 const Operand&) override {
    if (!engine_.dry("round_sum", dtype_, rounded, sum, count))
      launch_round_sum(type_, rounded, reinterpret_cast<const float*>(sum),
                       count, engine_.stream());
  }

 protected:
  // A square that was computed by halves is folded: only one half is stored and
  // read. One that was computed in full may be read so, too.
  Tiles square_tiles(const Operand& r, Half half = Half::kTriangle) const {
    Tiles tiles = tiles_of(r);
    tiles.folded = folds_ && half == Half::kTriangle;
    return tiles;
  }

  // Returns the share of a·I that is added to P itself; bf16 keeps it apart if
  // only multiply() reads the result; fp16 has enough bits for both.
  double identity_inside(Operand& p, double a, Readers readers) const {
    const bool apart = dtype_ == DType::kBf16 && readers == Readers::kMultiply;
    p.identity = apart ? a : 0;
    return apart ? 0 : a;
  }

  // P = b·R + inside·I
  void line(const Operand& p, const Operand& r, double b, double inside) {
    const TileAddend addend{square_tiles(r), static_cast<float>(b),
                            static_cast<float>(inside)};
    if (!engine_.dry("line", dtype_, p.storage, r.storage, r.rows, r.count,
                     inside, b))
      launch_tile_line(type_, square_tiles(p), addend, engine_.stream());
  }

  void add_diagonal(const Operand& d, double value) {
    if (!engine_.dry("diagonal", dtype_, d.storage, d.rows, d.count, value))
      launch_add_diagonal(type_, tiles_of(d), static_cast<float>(value),
                          engine_.stream());
  }

  // The product with the identity's share is rounded to 16 bits, as references
  // do.
  void round_first(const Store& store, const Operand& q, const Operand& x) {
    Arena& arena = engine_.arena();
    const Arena::Scope scope(arena);
    Operand y = take(arena, x);
    multiply(y, q, x);
    const TileWeights weights =
        weights_of(store, device_places<float>(engine_, store.out));
    if (!engine_.dry("store", dtype_, y.storage, x.rows, x.cols, x.count,
                     x.tall, store.apply != nullptr, store.rounded != nullptr,
                     store.out.skips != nullptr, store.out.group_rows))
      launch_tile_store(type_, tiles_of(y), weights, engine_.stream());
  }

 private:
  TileProduct product_of(const Tiles& a, const Tiles& b, double alpha) const {
    TileProduct product;
    product.type = type_;
    product.a = a;
    product.b = b;
    product.alpha = static_cast<float>(alpha);
    return product;
  }

  // Returns X·Xᵀ by strips, with scratch from the arena.
  TileProduct gram_product(const Operand& x) const {
    TileProduct product = product_of(tiles_of(x), tiles_of(x), 1);
    product.order = x.tall ? TileOrder::kAtB : TileOrder::kABt;
    product.strips.count = x.strips.count;
    if (x.strips.count == 1) return product;
    for (int s = 0; s < x.strips.count; ++s)
      product.strips.at[s] = x.strips.begin(s);
    product.strips.scratch =
        engine_.arena().take_array<float>(tile_strip_floats(x.strips.count));
    return product;
  }

  // Returns Q·X, or X·Q for an X that is stored transposed.
  TileProduct wide_product(const Operand& q, const Operand& x) const {
    TileProduct product = x.tall ? product_of(tiles_of(x), square_tiles(q), 1)
                                 : product_of(square_tiles(q), tiles_of(x), 1);
    product.order = x.tall ? TileOrder::kABt : TileOrder::kAB;
    return product;
  }

  void square(const char* name, const TileProduct& product, const Operand& d,
              const TileAddend& addend, Half half, int64_t cuts = 0) {
    if (engine_.dry(name, dtype_, d.storage, product.a.data, product.b.data,
                    product.a.rows, product.a.cols, d.rows, d.count,
                    product.alpha, addend.c.data, addend.beta, addend.diagonal,
                    static_cast<int>(half), static_cast<int>(product.order),
                    product.strips.scratch, cuts))
      return;
    const Tiles to = square_tiles(d, half);
    if (half == Half::kTriangle)
      symmetric_tile_product(product, to, addend, engine_.stream());
    else
      tile_product(product, to, addend, engine_.stream());
  }

  // Without scalars the products overwrite the weights.
  TileWeights weights_of(const Store& store, float* const* out) {
    TileWeights weights;
    weights.weights = out;
    weights.skips = device_skips(engine_, store.out);
    weights.group_rows = static_cast<int32_t>(store.out.group_rows);
    if (store.apply != nullptr) {
      CANZONA_CHECK(!store.apply->cautious, "cautious decay in a product");
      weights.scalars = engine_.push<float>(
          {store.apply->keep_before, store.apply->step, store.apply->keep_after,
           store.as_sent ? 1.0 : 0.0});
    }
    if (store.rounded != nullptr)
      weights.copies = engine_.table(
          std::span(store.rounded, static_cast<size_t>(store.out.count)));
    return weights;
  }

  void apply_into(const Store& store, float* const* out, const Operand& q,
                  const Operand& x) {
    const TileWeights weights = weights_of(store, out);
    if (!engine_.dry("apply_into", dtype_, store.rounded != nullptr,
                     store.out.skips != nullptr, store.out.group_rows,
                     q.storage, x.storage, x.rows, x.cols, x.count, x.tall))
      tile_product_apply(wide_product(q, x), weights, engine_.stream());
  }

  const TileType type_;
  const bool folds_;
};

// The same with cuBLAS's products. It has none that computes half of a
// symmetric matrix, so its rows are cut into blocks, which are computed up to
// the diagonal and mirrored. Matrices with strips (TileStrips) keep the kernel
// that adds them by a tree; their factors are mirrored, because members of a
// team get one half of them.
class CublasAlgebra final : public TileAlgebra {
 public:
  CublasAlgebra(CudaEngine& engine, DType dtype)
      : TileAlgebra(engine, dtype, false) {}

  void gram(Operand& r, const Operand& x, Half half) override {
    if (has_strips(x)) return TileAlgebra::gram(r, x, half);
    const Op op = x.tall ? Op::kTranspose : Op::kNone;
    const Op other = x.tall ? Op::kNone : Op::kTranspose;
    square_product(half, r, 1, {view(x), op}, {view(x), other});
  }

  // The square and the line are rounded before the identity's share is added,
  // which cuBLAS cannot add.
  void polynomial(Operand& p, const Operand& r, double a, double b, double c,
                  Half half, Readers readers) override {
    const double inside = identity_inside(p, a, readers);
    if (c == 0) return line(p, r, b, inside);
    square_product(half, p, c, {view(r)}, {view(r)}, b, view(r));
    if (inside != 0) add_diagonal(p, inside);
  }

  void commuting_product(Operand& d, const Operand& a,
                         const Operand& b) override {
    square_product(Half::kTriangle, d, 1, {view(a)}, {view(b)});
  }

  void multiply(Operand& y, const Operand& q, const Operand& x) override {
    if (has_strips(x)) {
      mirror(q);
      return TileAlgebra::multiply(y, q, x);
    }
    const ConstMatrices wide = view(x), square = view(q);
    product(view(y), 1, {x.tall ? wide : square}, {x.tall ? square : wide},
            q.identity, q.identity == 0 ? ConstMatrices{} : wide);
  }

  void multiply_into(const Store& store, const Operand& q,
                     const Operand& x) override {
    if (has_strips(x)) {
      mirror(q);
      return TileAlgebra::multiply_into(store, q, x);
    }
    CANZONA_CHECK(store.transpose == x.tall && store.out.contiguous() &&
                      store.out.dtype == DType::kFp32,
                  "results of 16 bits go into contiguous fp32");
    round_first(store, q, x);
  }

  void put_factor(std::byte* factor, const Operand& q,
                  const Operand& x) override {
    mirror(q);
    CudaAlgebra::put_factor(factor, q, x);
  }

 private:
  // True for one strip of several, too.
  static bool has_strips(const Operand& x) {
    return x.strips.count > 1 || x.is_part;
  }

  // Views x as it is stored: transposed if it came tall.
  Matrices view(const Operand& x) const {
    const StoredShape shape = stored(x);
    return {x.storage,
            dtype_,
            shape.rows,
            shape.cols,
            shape.row_stride,
            x.count,
            shape.matrix_stride(),
            nullptr};
  }

  // A factor of a product, transposed or not.
  struct Factor {
    ConstMatrices data;
    Op op = Op::kNone;

    int64_t rows() const { return op == Op::kNone ? data.rows : data.cols; }
    int64_t cols() const { return op == Op::kNone ? data.cols : data.rows; }
    Factor part(int64_t row, int64_t rows, int64_t col, int64_t cols) const {
      return {op == Op::kNone ? block_of(data, row, rows, col, cols)
                              : block_of(data, col, cols, row, rows),
              op};
    }
  };

  template <class Views>
  static Views block_of(Views m, int64_t row, int64_t rows, int64_t col,
                        int64_t cols) {
    m.data += (row * m.row_stride + col) * size_of(m.dtype);
    m.rows = rows;
    m.cols = cols;
    return m;
  }

  // C = alpha·A·B + beta·addend, by default without one.
  void product(const Matrices& c, double alpha, const Factor& a,
               const Factor& b, double beta = 0,
               const ConstMatrices& addend = {}) {
    const ConstMatrices added = addend.data == nullptr ? c : addend;
    const float* scalars = engine_.push<float>({alpha, beta});
    const ProductShape shape{dtype_, dtype_, c.rows, c.cols, a.cols(),   a.op,
                             b.op,   true,   true,   true,   kUsualCount};
    LtProducts& products = engine_.lt_products();
    products.prepare(shape);
    if (!engine_.dry("cublas", c, a.data, a.op, b.data, b.op, added, beta == 0))
      products.run(shape, c, scalars, a.data, b.data, scalars + 1, &added);
  }

  void mirror(const Operand& q) {
    if (!engine_.dry("mirror", dtype_, q.storage, q.rows, q.count))
      launch_mirror_tiles(tiles_of(q), engine_.stream());
  }

  // Matrices of a shape that a model usually has: as many layers.
  static constexpr int64_t kUsualCount = 16;

  // Blocks of a few hundred rows keep a GPU busy; more of them save less and
  // less of the half that need not be computed.
  static constexpr int64_t kBlockRows = 512;
  static constexpr int64_t kMostBlocks = 8;

  void square_product(Half half, const Operand& d, double alpha,
                      const Factor& a, const Factor& b, double beta = 0,
                      const ConstMatrices& addend = {}) {
    const Matrices c = view(d);
    const int64_t blocks =
        half == Half::kFull
            ? 1
            : std::clamp<int64_t>(c.rows / kBlockRows, 1, kMostBlocks);
    if (blocks == 1) return product(c, alpha, a, b, beta, addend);
    const int64_t each = (c.rows / blocks + 63) / 64 * 64;
    for (int64_t row = 0; row < c.rows; row += each) {
      const int64_t rows = std::min(each, c.rows - row);
      const int64_t cols = row + rows;
      product(block_of(c, row, rows, 0, cols), alpha,
              a.part(row, rows, 0, a.cols()), b.part(0, b.rows(), 0, cols),
              beta,
              addend.data == nullptr ? addend
                                     : block_of(addend, row, rows, 0, cols));
    }
    mirror(d);
  }
};

}  // namespace

std::unique_ptr<Algebra> make_tile_algebra(CudaEngine& engine, DType dtype) {
  if (uses_cublas()) return std::make_unique<CublasAlgebra>(engine, dtype);
  return std::make_unique<TileAlgebra>(engine, dtype);
}

std::unique_ptr<Algebra> make_cuda_algebra(CudaEngine& engine, DType dtype) {
  const bool plain = dtype == DType::kFp32 || dtype == DType::kFp64;
  return plain ? make_plain_algebra(engine, dtype)
               : make_tile_algebra(engine, dtype);
}

}  // namespace canzona::linalg
