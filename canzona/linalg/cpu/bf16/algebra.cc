// Newton–Schulz in bf16 with fp32 sums, on blocks (kernel.h).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cpu/bf16/kernel.h"
#include "canzona/linalg/cpu/bf16/product.h"
#include "canzona/linalg/cpu/cpu_algebra.h"
#include "canzona/linalg/memory.h"
#include "canzona/linalg/operand.h"

namespace canzona::linalg {
namespace {

// The blocks of an operand: where its formats begin. Operands are laid out only
// here.

Operand take_wide(Arena& arena, int64_t rows, int64_t cols,
                  const Strips& strips);
Operand take_symmetric(Arena& arena, int64_t rows);

Blocks wide_blocks(const Operand& x);
Blocks symmetric_blocks(const Operand& r);

// One fp64 per row of blocks of a wide operand, stored beside its blocks.
double* row_sums(const Operand& x);

// Blocks begin on a page, so that none spans three.
constexpr int64_t kAlignment = 4096;
constexpr int64_t kBlockBytes =
    kBlockElements * static_cast<int64_t>(sizeof(Bf16));

std::byte* take_aligned(Arena& arena, int64_t bytes) {
  std::byte* memory = arena.take(bytes + kAlignment);
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const auto past = static_cast<int64_t>(address % kAlignment);
  return memory + (past == 0 ? 0 : kAlignment - past);
}

Operand make_operand(std::byte* storage, int64_t rows, int64_t cols) {
  Operand operand;
  operand.storage = storage;
  operand.rows = rows;
  operand.cols = cols;
  return operand;
}

Blocks blocks_of(const Operand& operand) {
  Blocks blocks;
  blocks.block_rows = num_blocks(operand.rows);
  blocks.block_cols = num_blocks(operand.cols);
  blocks.rows = reinterpret_cast<Bf16*>(operand.storage);
  blocks.transposed = blocks.rows + blocks.count() * kBlockElements;
  return blocks;
}

Operand take_wide(Arena& arena, int64_t rows, int64_t cols,
                  const Strips& strips) {
  const int64_t blocks = num_blocks(rows) * num_blocks(cols);
  const int64_t sums = num_blocks(rows) * static_cast<int64_t>(sizeof(double));
  Operand x = make_operand(take_aligned(arena, 3 * blocks * kBlockBytes + sums),
                           rows, cols);
  x.strips = strips;
  return x;
}

Operand take_symmetric(Arena& arena, int64_t rows) {
  CANZONA_CHECK(0 <= rows, "symmetric operand of ", rows, " rows");
  const int64_t blocks = num_blocks(rows) * num_blocks(rows);
  return make_operand(take_aligned(arena, 2 * blocks * kBlockBytes), rows,
                      rows);
}

Blocks wide_blocks(const Operand& x) {
  Blocks blocks = blocks_of(x);
  blocks.pairs = blocks.transposed + blocks.count() * kBlockElements;
  return blocks;
}

Blocks symmetric_blocks(const Operand& r) {
  CANZONA_CHECK_EQ(r.rows, r.cols, "symmetric operand");
  return blocks_of(r);
}

double* row_sums(const Operand& x) {
  const Blocks blocks = wide_blocks(x);
  return reinterpret_cast<double*>(blocks.pairs +
                                   blocks.count() * kBlockElements);
}

// v = alpha·(A·B) + Σ weight·addend over symmetric operands.
struct Combination {
  struct Term {
    double weight;
    const Operand* operand;
  };

  double alpha = 1;
  int num_terms = 0;
  Term terms[2] = {};
};

int piece(int64_t size, int64_t block) {
  return static_cast<int>(std::min<int64_t>(size - block * kBlock, kBlock));
}

class Bf16Algebra final : public CpuAlgebra {
 public:
  explicit Bf16Algebra(const BlockKernel& kernel)
      : kernel_(kernel), products_(kernel) {}

  Operand wide(Arena& arena, int64_t rows, int64_t cols, int64_t count, bool,
               const Strips& strips) override {
    CANZONA_CHECK_EQ(count, 1, "matrices at a time");
    CANZONA_CHECK(0 <= rows && rows <= cols, "wide operand ", rows, "x", cols);
    return take_wide(arena, rows, cols, strips);
  }
  Operand part(Arena& arena, int64_t rows, int64_t cols, bool,
               const Strips& strips) override {
    return take_wide(arena, rows, cols, strips);
  }
  Operand symmetric(Arena& arena, int64_t rows, int64_t count) override {
    CANZONA_CHECK_EQ(count, 1, "matrices at a time");
    return take_symmetric(arena, rows);
  }

  NormPart load_strip(Operand& x, const Load& load, int strip) override;
  void gram(Operand& r, const Operand& x, Half half) override;
  void polynomial(Operand& p, const Operand& r, double a, double b, double c,
                  Half half, Readers readers) override;
  void commuting_product(Operand& d, const Operand& a,
                         const Operand& b) override;
  void sandwich(Operand& u, const Operand& p, const Operand& r,
                Operand& scratch) override;
  void multiply(Operand& y, const Operand& q, const Operand& x) override;
  void store_product(const Store& store, const Operand& q,
                     const Operand& x) override;
  double norm(const Operand& r) override;
  void rescale(Operand& r, double factor) override { r.scale *= factor; }

  int64_t sum_bytes() const override { return sizeof(float); }
  int64_t rounded_bytes() const override { return sizeof(Bf16); }
  void gram_sum(std::byte* sum, const Operand& x, Half half) override;
  void round_sum(std::byte* rounded, const std::byte* sum, int64_t count,
                 const Operand& x) override;
  void take_gram(Operand& r, const std::byte* rounded) override;
  void put_factor(std::byte* factor, const Operand& q,
                  const Operand& x) override;
  void take_factor(Operand& q, Operand& x, const std::byte* factor,
                   double) override;

 private:
  // Returns the squares of the blocks [begin, end) of x's columns, which it has
  // filled.
  double load_blocks(const Blocks& to, double* sums, const Load& load,
                     int64_t begin, int64_t end);
  // Returns the epilogue of block (i, j) of a symmetric result.
  Epilogue symmetric_epilogue(const Blocks& to, int64_t i, int64_t j,
                              bool triangle);
  // Fills a symmetric operand from its lower triangle.
  void take_triangle(const Operand& to, const Bf16* triangle);
  // Sets the scale and the identity of d.
  void symmetric_product(Operand& d, const Factors& factors,
                         const Combination& combination, double identity,
                         Half half);
  void symmetric_product(Operand& d, const Operand& a, const Operand& b,
                         const Combination& combination, double identity,
                         Half half);

  const BlockKernel& kernel_;
  BlockProducts products_;
  // Formats that a block must write but nobody reads.
  alignas(64) Bf16 unused_pairs_[kBlockElements];
  alignas(64) Bf16 unused_mirror_[kBlockElements];
};

SourcePiece source_piece(const Load& load) {
  SourcePiece piece;
  piece.keep = static_cast<float>(load.blend.keep);
  piece.add = static_cast<float>(load.blend.add);
  piece.from_grad = static_cast<float>(load.blend.from_grad);
  piece.from_momentum = static_cast<float>(load.blend.from_momentum);
  piece.prescale = static_cast<float>(load.prescale);
  piece.source_stride = load.source.row_stride;
  piece.momentum_stride = load.momentum.row_stride;
  return piece;
}

void check_load(const Operand& x, const Load& load) {
  CANZONA_CHECK_EQ(load.source.rows, load.transpose ? x.cols : x.rows);
  CANZONA_CHECK_EQ(load.source.cols, load.transpose ? x.rows : x.cols);
  if (load.momentum.data == nullptr) return;
  CANZONA_CHECK_EQ(load.momentum.rows, load.source.rows);
  CANZONA_CHECK_EQ(load.momentum.cols, load.source.cols);
}

// Walks the source in memory order, one strip. The blocks of one row of x come
// in the same order whether or not the source is transposed, so the sums of
// rows have the same bits, and so has their sum.
NormPart Bf16Algebra::load_strip(Operand& x, const Load& load, int strip) {
  check_load(x, load);
  x.scale = 1;
  x.identity = 0;
  const double squares = load_blocks(wide_blocks(x), row_sums(x), load,
                                     x.strips.begin(strip) / kBlock,
                                     num_blocks(x.strips.end(strip, x.cols)));
  return {squares, std::sqrt(squares)};
}

double Bf16Algebra::load_blocks(const Blocks& to, double* sums,
                                const Load& load, int64_t begin, int64_t end) {
  std::fill_n(sums, to.block_rows, 0.0);
  const float* source = load.source.as<float>();
  float* momentum =
      load.momentum.data == nullptr ? nullptr : load.momentum.as<float>();
  const bool tall = load.transpose;
  const int64_t r_end = tall ? end : to.block_rows;
  const int64_t c_end = tall ? to.block_rows : end;
  alignas(64) float values[kBlockElements];
  SourcePiece from = source_piece(load);
  for (int64_t r = tall ? begin : 0; r < r_end; ++r)
    for (int64_t c = tall ? 0 : begin; c < c_end; ++c) {
      from.height = piece(load.source.rows, r);
      from.width = piece(load.source.cols, c);
      from.source = source + (r * load.source.row_stride + c) * kBlock;
      if (momentum != nullptr)
        from.momentum = momentum + (r * load.momentum.row_stride + c) * kBlock;
      kernel_.read(values, from);
      const int64_t i = tall ? c : r;
      const int64_t j = tall ? r : c;
      sums[i] += kernel_.pack(
          {to.rows_at(i, j), to.transposed_at(i, j), to.pairs_at(i, j)}, values,
          tall);
    }
  double total = 0;
  for (int64_t i = 0; i < to.block_rows; ++i) total += sums[i];
  return total;
}

Epilogue Bf16Algebra::symmetric_epilogue(const Blocks& to, int64_t i, int64_t j,
                                         bool triangle) {
  Epilogue e;
  e.rows = to.rows_at(i, j);
  e.transposed = to.transposed_at(i, j);
  if (triangle && i != j) {
    e.pairs = to.pairs_at(i, j);
    e.mirror = to.rows_at(j, i);
  } else {
    e.target = triangle ? Target::kDiagonal : Target::kPacked;
    e.pairs = unused_pairs_;
    e.mirror = triangle ? unused_mirror_ : nullptr;
  }
  return e;
}

void Bf16Algebra::symmetric_product(Operand& d, const Factors& factors,
                                    const Combination& combination,
                                    double identity, Half half) {
  const Blocks to = symmetric_blocks(d);
  Blocks addends[2];
  for (int n = 0; n < combination.num_terms; ++n)
    addends[n] = symmetric_blocks(*combination.terms[n].operand);
  products_.run(factors, half, [&](int64_t i, int64_t j) {
    Epilogue e = symmetric_epilogue(to, i, j, half == Half::kTriangle);
    e.alpha = static_cast<float>(combination.alpha);
    e.num_addends = combination.num_terms;
    for (int n = 0; n < e.num_addends; ++n) {
      e.weight[n] = static_cast<float>(combination.terms[n].weight);
      e.addend[n] = addends[n].pairs_at(i, j);
    }
    return e;
  });
  d.scale = 1;
  d.identity = identity;
}

void Bf16Algebra::symmetric_product(Operand& d, const Operand& a,
                                    const Operand& b,
                                    const Combination& combination,
                                    double identity, Half half) {
  CANZONA_CHECK(d.storage != a.storage && d.storage != b.storage,
                "a product cannot overwrite its factors");
  CANZONA_CHECK_EQ(d.rows, a.rows);
  CANZONA_CHECK_EQ(d.rows, b.rows);
  const Blocks left = symmetric_blocks(a);
  const int64_t blocks = left.block_rows;
  symmetric_product(
      d, {left.rows, symmetric_blocks(b).transposed, blocks, blocks, blocks},
      combination, identity, half);
}

// X·Xᵀ; strips are counted in blocks.
Factors gram_factors(const Operand& x) {
  const Blocks from = wide_blocks(x);
  Factors factors{from.rows,       from.transposed, from.block_rows,
                  from.block_rows, from.block_cols, x.strips};
  for (int64_t& at : factors.strips.at) at /= kBlock;
  return factors;
}

void Bf16Algebra::gram(Operand& r, const Operand& x, Half half) {
  CANZONA_CHECK_EQ(r.rows, x.rows);
  symmetric_product(r, gram_factors(x), {.alpha = x.scale * x.scale}, 0, half);
}

void Bf16Algebra::polynomial(Operand& p, const Operand& r, double a, double b,
                             double c, Half half, Readers) {
  if (c != 0) {
    const Combination sum{c * r.scale * r.scale, 1, {{b * r.scale, &r}}};
    return symmetric_product(p, r, r, sum, a, half);
  }
  CANZONA_CHECK_EQ(p.rows, r.rows);
  const Blocks from = symmetric_blocks(r);
  const int64_t elements = from.count() * kBlockElements;
  const auto bytes = static_cast<size_t>(elements) * sizeof(Bf16);
  if (bytes > 0) {
    std::memcpy(symmetric_blocks(p).rows, from.rows, bytes);
    std::memcpy(symmetric_blocks(p).transposed, from.transposed, bytes);
  }
  p.scale = b * r.scale;
  p.identity = a;
}

// (A' + aI)(B' + bI) = A'B' + aB' + bA' + abI
void Bf16Algebra::commuting_product(Operand& d, const Operand& a,
                                    const Operand& b) {
  const Combination sum{
      a.scale * b.scale,
      2,
      {{a.identity * b.scale, &b}, {b.identity * a.scale, &a}}};
  symmetric_product(d, a, b, sum, a.identity * b.identity, Half::kTriangle);
}

// T = R·P = RP' + pR, then U = T·P = TP' + pT.
void Bf16Algebra::sandwich(Operand& u, const Operand& p, const Operand& r,
                           Operand& scratch) {
  const Combination inner{r.scale * p.scale, 1, {{p.identity * r.scale, &r}}};
  symmetric_product(scratch, r, p, inner, 0, Half::kTriangle);
  const Combination outer{p.scale, 1, {{p.identity, &scratch}}};
  symmetric_product(u, scratch, p, outer, 0, Half::kTriangle);
}

// scale·(Q'X + qX) in either form.
Factors wide_factors(const Operand& q, const Operand& x) {
  CANZONA_CHECK_EQ(q.rows, x.rows);
  const Blocks left = symmetric_blocks(q);
  const Blocks right = wide_blocks(x);
  return {left.rows, right.pairs, right.block_rows, right.block_cols,
          right.block_rows};
}

Epilogue wide_epilogue(const Operand& q, const Operand& x) {
  Epilogue e;
  e.alpha = static_cast<float>(x.scale * q.scale);
  e.num_addends = 1;
  e.weight[0] = static_cast<float>(x.scale * q.identity);
  return e;
}

void Bf16Algebra::multiply(Operand& y, const Operand& q, const Operand& x) {
  CANZONA_CHECK(y.storage != x.storage,
                "a product cannot overwrite its factor");
  CANZONA_CHECK_EQ(y.rows, x.rows);
  CANZONA_CHECK_EQ(y.cols, x.cols);
  const Blocks from = wide_blocks(x);
  const Blocks to = wide_blocks(y);
  Epilogue common = wide_epilogue(q, x);
  products_.run(wide_factors(q, x), Half::kFull, [&](int64_t i, int64_t j) {
    Epilogue e = common;
    e.addend[0] = from.pairs_at(i, j);
    e.rows = to.rows_at(i, j);
    e.transposed = to.transposed_at(i, j);
    e.pairs = to.pairs_at(i, j);
    return e;
  });
  y.scale = 1;
  y.identity = 0;
}

void Bf16Algebra::store_product(const Store& store, const Operand& q,
                                const Operand& x) {
  const Matrices& out = store.out;
  CANZONA_CHECK_EQ(out.rows, store.transpose ? x.cols : x.rows);
  CANZONA_CHECK_EQ(out.cols, store.transpose ? x.rows : x.cols);
  const Blocks from = wide_blocks(x);
  float* data = out.as<float>();
  Epilogue common = wide_epilogue(q, x);
  common.target = Target::kPlain;
  common.stride = out.row_stride;
  common.transpose = store.transpose;
  common.apply = store.apply != nullptr;
  if (store.apply != nullptr) {
    CANZONA_CHECK(!store.apply->cautious, "cautious decay in a product");
    common.coefficients = {static_cast<float>(store.apply->keep_before),
                           static_cast<float>(store.apply->step),
                           static_cast<float>(store.apply->keep_after)};
  }
  products_.run(wide_factors(q, x), Half::kFull, [&](int64_t i, int64_t j) {
    const int64_t r = store.transpose ? j : i;
    const int64_t c = store.transpose ? i : j;
    Epilogue e = common;
    // The pairs of a transpose are the transposed tiles.
    e.addend[0] =
        store.transpose ? from.transposed_at(i, j) : from.pairs_at(i, j);
    e.out = data + (r * out.row_stride + c) * kBlock;
    e.height = piece(out.rows, r);
    e.width = piece(out.cols, c);
    return e;
  });
}

double Bf16Algebra::norm(const Operand& r) {
  const Blocks blocks = symmetric_blocks(r);
  double total = 0;
  for (int64_t i = 0; i < blocks.block_rows; ++i) {
    double row = 0;
    for (int64_t j = 0; j < blocks.block_cols; ++j)
      row += kernel_.sum_of_squares(blocks.rows_at(i, j));
    total += row;
  }
  return std::abs(r.scale) * std::sqrt(total);
}

// Returns the index at which row i of a lower triangle begins.
int64_t triangle_row(int64_t i) { return i * (i + 1) / 2; }

// Calls work(r, first, columns): row r of block (i, j) of a lower triangle has
// this many columns, the first of which is number `first` of the triangle.
template <class Work>
void for_triangle_rows(int64_t size, int64_t i, int64_t j, const Work& work) {
  for (int64_t r = 0; r < piece(size, i); ++r) {
    const int64_t row = i * kBlock + r;
    work(r, triangle_row(row) + j * kBlock,
         std::min<int64_t>(kBlock, row + 1 - j * kBlock));
  }
}

void Bf16Algebra::gram_sum(std::byte* sum, const Operand& x, Half half) {
  auto* triangle = reinterpret_cast<float*>(sum);
  products_.sum(gram_factors(x), half,
                [&](int64_t i, int64_t j, const float* acc) {
                  if (j > i) return;
                  for_triangle_rows(
                      x.rows, i, j, [&](int64_t r, int64_t at, int64_t count) {
                        std::copy_n(acc + r * kBlock, count, triangle + at);
                      });
                });
}

void Bf16Algebra::round_sum(std::byte* rounded, const std::byte* sum,
                            int64_t count, const Operand& x) {
  const auto* from = reinterpret_cast<const float*>(sum);
  auto* to = reinterpret_cast<Bf16*>(rounded);
  const auto alpha = static_cast<float>(x.scale * x.scale);
  for (int64_t i = 0; i < count; ++i)
    to[i] = bf16_of_bits(std::bit_cast<uint32_t>(from[i] * alpha));
}

void Bf16Algebra::take_triangle(const Operand& to, const Bf16* triangle) {
  const Blocks blocks = symmetric_blocks(to);
  alignas(64) float values[kBlockElements], spare[kBlockElements];
  kernel_.begin();
  for (int64_t i = 0; i < blocks.block_rows; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      std::fill_n(values, kBlockElements, 0.0F);
      for_triangle_rows(to.rows, i, j, [&](int64_t r, int64_t at, int64_t n) {
        for (int64_t c = 0; c < n; ++c)
          values[r * kBlock + c] = std::bit_cast<float>(
              static_cast<uint32_t>(triangle[at + c]) << 16);
      });
      Epilogue e = symmetric_epilogue(blocks, i, j, /*triangle=*/true);
      e.acc = values;
      e.spare = spare;
      kernel_.finish(e);
    }
  kernel_.end();
}

void Bf16Algebra::take_gram(Operand& r, const std::byte* rounded) {
  take_triangle(r, reinterpret_cast<const Bf16*>(rounded));
  r.scale = 1;
  r.identity = 0;
}

void Bf16Algebra::put_factor(std::byte* factor, const Operand& q,
                             const Operand& x) {
  const double scalars[kFactorScalars] = {q.scale, q.identity, x.scale, 0};
  std::memcpy(factor, scalars, sizeof(scalars));
  auto* triangle = reinterpret_cast<Bf16*>(factor + sizeof(scalars));
  const Blocks from = symmetric_blocks(q);
  for (int64_t i = 0; i < from.block_rows; ++i)
    for (int64_t j = 0; j <= i; ++j)
      for_triangle_rows(q.rows, i, j, [&](int64_t r, int64_t at, int64_t n) {
        std::copy_n(from.rows_at(i, j) + r * kBlock, n, triangle + at);
      });
}

void Bf16Algebra::take_factor(Operand& q, Operand& x, const std::byte* factor,
                              double) {
  double scalars[kFactorScalars];
  std::memcpy(scalars, factor, sizeof(scalars));
  take_triangle(q, reinterpret_cast<const Bf16*>(factor + sizeof(scalars)));
  q.scale = scalars[0];
  q.identity = scalars[1];
  x.scale = scalars[2];
}

}  // namespace

std::unique_ptr<CpuAlgebra> make_bf16_algebra(Bf16Kernel kernel) {
  const auto usable = usable_bf16_kernels();
  if (std::ranges::find(usable, kernel) == usable.end())
    throw UsageError(
        cat("bf16 kernel ", to_string(kernel),
            ": this machine cannot run it; the best one it can run is ",
            to_string(usable.front())));
  return std::make_unique<Bf16Algebra>(block_kernel(kernel));
}

}  // namespace canzona::linalg
