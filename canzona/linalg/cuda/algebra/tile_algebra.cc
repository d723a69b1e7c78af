// Newton–Schulz in fp16 or bf16 with fp32 sums.
#include <algorithm>
#include <utility>
#include <vector>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/algebra/algebra.h"
#include "canzona/linalg/cuda/algebra/strips.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/tiles/tile_product.h"

namespace canzona {
namespace {

// The copy engine of the GPU asks this of a row.
constexpr int64_t kRowStep = 8;

Tiles wide_tiles(const Operand& x) {
  const StoredShape shape = stored_shape(x, kRowStep);
  return {x.storage,        shape.rows, shape.cols,
          shape.row_stride, x.count,    shape.matrix_stride()};
}

// Only one half of what was computed by halves is stored and read; what was
// computed in full may be read so, too.
Tiles square_tiles(const Operand& r, Half half = Half::kTriangle) {
  Tiles tiles = wide_tiles(r);
  tiles.folded = half == Half::kTriangle;
  return tiles;
}

TileStrips tile_strips(const Operand& x) {
  TileStrips strips;
  strips.count = x.strips.count;
  for (int s = 0; s < strips.count; ++s) strips.at[s] = x.strips.begin(s);
  return strips;
}

// Some matrices of a batch.
Tiles part_of(Tiles tiles, int64_t begin, int64_t count) {
  tiles.data += 2 * begin * tiles.matrix_stride;
  tiles.count = count;
  return tiles;
}

// As many matrices at a time as have room for the Gram matrices of their
// strips, and as lie where products can begin.
int64_t gram_group(const Tiles& x, const Tiles& r, int strips) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;
  constexpr int64_t kAlignment = 128 / 2;
  int64_t step = 1;
  while (step * x.matrix_stride % kAlignment != 0 ||
         step * r.matrix_stride % kAlignment != 0)
    step *= 2;
  const int64_t fitting = kMostBytes / (4 * strips * r.rows * r.rows);
  return std::max(step, fitting / step * step);
}

class TileAlgebra final : public CudaAlgebra {
 public:
  TileAlgebra(CudaEngine& engine, DType dtype)
      : CudaAlgebra(engine, dtype, kRowStep, /*apart=*/false),
        type_(dtype == DType::kBf16 ? TileType::kBf16 : TileType::kFp16) {}

  void normalize_by_gram(Operand& x, Operand& r, double factor) override {
    normalize_operand(engine_, x, stored_shape(x, kRowStep), r,
                      stored_shape(r, kRowStep), true, dtype_, factor);
  }

  void gram(Operand& r, const Operand& x, Half half) override {
    if (x.strips.count > 1) return add_strips(r, x, half);
    TileProduct product = product_of(wide_tiles(x), wide_tiles(x), 1);
    product.order = x.tall ? TileOrder::kAtB : TileOrder::kABt;
    square("gram", product, r, {}, half);
  }

  void gram_sum(std::byte* sum, const Operand& x, Half half) override {
    const Arena::Scope scope(engine_.arena());
    const StripSums sums = strip_grams(x, 0, 1, half);
    if (!engine_.dry("gram_sum", dtype_, sums.data, sum, x.rows))
      launch_strip_triangle(sums, x.rows, reinterpret_cast<float*>(sum),
                            engine_.stream());
  }
  void round_sum(std::byte* rounded, const std::byte* sum, int64_t count,
                 const Operand&) override {
    if (!engine_.dry("round_sum", dtype_, rounded, sum, count))
      launch_round_triangle(type_, reinterpret_cast<const float*>(sum), count,
                            rounded, engine_.stream());
  }

  // In bf16 the identity is kept out wherever no product but the next needs it;
  // fp16 has bits enough for both.
  void polynomial(Operand& p, const Operand& r, double a, double b, double c,
                  Half half, Readers readers) override {
    const bool apart = dtype_ == DType::kBf16 && readers == Readers::kMultiply;
    p.identity = apart ? a : 0;
    const double inside = apart ? 0 : a;
    const Tiles tiles = square_tiles(r, half);
    TileAddend addend{tiles, static_cast<float>(b), static_cast<float>(inside)};
    if (c != 0)
      return square("polynomial", product_of(tiles, tiles, c), p, addend, half);
    if (!engine_.dry("line", dtype_, p.storage, r.storage, r.rows, r.count,
                     inside, b))
      launch_tile_line(type_, square_tiles(p), addend, engine_.stream());
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
      addend = {wide_tiles(x), static_cast<float>(q.identity), 0};
    if (!engine_.dry("multiply", dtype_, y.storage, q.storage, x.storage,
                     x.rows, x.cols, x.count, x.tall, q.identity))
      tile_product(wide_product(q, x), wide_tiles(y), addend, engine_.stream());
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

 private:
  TileProduct product_of(const Tiles& a, const Tiles& b, double alpha) const {
    TileProduct product;
    product.type = type_;
    product.a = a;
    product.b = b;
    product.alpha = static_cast<float>(alpha);
    return product;
  }

  // The Gram matrices of the strips of some matrices, in scratch of the arena.
  StripSums strip_grams(const Operand& x, int64_t begin, int64_t count,
                        Half half) {
    const int strips = x.strips.count;
    const int64_t each = x.rows * x.rows;
    auto* data = engine_.arena().take_array<float>(strips * count * each);
    std::vector<float*> places;
    for (int64_t i = 0; i < strips * count; ++i)
      places.push_back(data + i * each);
    float* const* out = engine_.table(places);
    const StripSums sums{data, strips};
    if (engine_.dry("strip_grams", dtype_, x.storage, data, x.rows, x.cols,
                    x.tall, strips, begin, count, static_cast<int>(half)))
      return sums;
    const Tiles all = part_of(wide_tiles(x), begin, count);
    TileProduct product = product_of(all, all, 1);
    product.order = x.tall ? TileOrder::kAtB : TileOrder::kABt;
    strip_tile_products_fp32(product, tile_strips(x), half == Half::kTriangle,
                             out, engine_.stream());
    return sums;
  }

  void add_strips(const Operand& r, const Operand& x, Half half) {
    const Tiles to = square_tiles(r, half);
    const int64_t group = gram_group(wide_tiles(x), to, x.strips.count);
    for (int64_t begin = 0; begin < x.count; begin += group) {
      const int64_t count = std::min(group, x.count - begin);
      const Arena::Scope scope(engine_.arena());
      const StripSums sums = strip_grams(x, begin, count, half);
      if (!engine_.dry("strip_tree", dtype_, r.storage, sums.data, begin, count,
                       static_cast<int>(half)))
        launch_strip_tree(type_, sums, part_of(to, begin, count),
                          engine_.stream());
    }
  }

  // Q·X, or X·Q for an X that is kept transposed.
  TileProduct wide_product(const Operand& q, const Operand& x) const {
    TileProduct product = x.tall
                              ? product_of(wide_tiles(x), square_tiles(q), 1)
                              : product_of(square_tiles(q), wide_tiles(x), 1);
    product.order = x.tall ? TileOrder::kABt : TileOrder::kAB;
    return product;
  }

  void square(const char* name, const TileProduct& product, const Operand& d,
              const TileAddend& addend, Half half) {
    if (engine_.dry(name, dtype_, d.storage, product.a.data, product.b.data,
                    product.a.rows, product.a.cols, d.rows, d.count,
                    product.alpha, addend.c.data, addend.beta, addend.diagonal,
                    static_cast<int>(half), static_cast<int>(product.order)))
      return;
    const Tiles to = square_tiles(d, half);
    if (half == Half::kTriangle)
      symmetric_tile_product(product, to, addend, engine_.stream());
    else
      tile_product(product, to, addend, engine_.stream());
  }

  // The sum with the identity's share is rounded to 16 bits, as references do.
  void round_first(const Store& store, const Operand& q, const Operand& x) {
    Arena& arena = engine_.arena();
    const Arena::Scope scope(arena);
    Operand y = take_operand(arena, x, kRowStep, dtype_);
    multiply(y, q, x);
    const TileWeights weights =
        weights_of(store, device_places<float>(engine_, store.out));
    if (!engine_.dry("store", dtype_, y.storage, x.rows, x.cols, x.count,
                     x.tall, store.apply != nullptr, store.rounded != nullptr))
      launch_tile_store(type_, wide_tiles(y), weights, engine_.stream());
  }

  // Without scalars the weights are simply written.
  TileWeights weights_of(const Store& store, float* const* out) {
    TileWeights weights;
    weights.weights = out;
    if (store.apply != nullptr) {
      CANZONA_CHECK(!store.apply->cautious, "cautious decay in a product");
      weights.scalars =
          engine_.push<float>({store.apply->keep_before, store.apply->step,
                               store.apply->keep_after});
    }
    if (store.rounded != nullptr)
      weights.copies = engine_.table(
          std::span(store.rounded, static_cast<size_t>(store.out.count)));
    return weights;
  }

  void apply_into(const Store& store, float* const* out, const Operand& q,
                  const Operand& x) {
    const TileWeights weights = weights_of(store, out);
    if (!engine_.dry("apply_into", dtype_, store.rounded != nullptr, q.storage,
                     x.storage, x.rows, x.cols, x.count, x.tall))
      tile_product_apply(wide_product(q, x), weights, engine_.stream());
  }

  const TileType type_;
};

}  // namespace

std::unique_ptr<Algebra> make_tile_algebra(CudaEngine& engine, DType dtype) {
  return std::make_unique<TileAlgebra>(engine, dtype);
}

std::unique_ptr<Algebra> make_cuda_algebra(CudaEngine& engine, DType dtype) {
  const bool plain = dtype == DType::kFp32 || dtype == DType::kFp64;
  return plain ? make_plain_algebra(engine, dtype)
               : make_tile_algebra(engine, dtype);
}

}  // namespace canzona
