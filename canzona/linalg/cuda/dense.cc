// Products of the CUDA engine.
#include <algorithm>
#include <span>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/kernels.h"
#include "canzona/linalg/cuda/libraries.h"

namespace canzona::linalg {

// One side of a product: op(stored), which is outer x inner if it is on the
// left and inner x outer if it is on the right.
struct DenseFactor {
  ConstMatrices stored{};
  Op op = Op::kNone;
  bool wide = false;
};

namespace {

// If rows are a multiple of 16 bytes long, they must be 16-byte aligned.
bool is_wide(const ConstMatrices& m) {
  return m.cols * size_of(m.dtype) % 16 == 0;
}

bool lies_as_its_shape_says(const ConstMatrices& m) {
  if (!is_wide(m)) return true;
  const int64_t size = size_of(m.dtype);
  return reinterpret_cast<uintptr_t>(m.data) % 16 == 0 &&
         (m.rows <= 1 || m.row_stride * size % 16 == 0) &&
         (m.count <= 1 || m.matrix_stride * size % 16 == 0);
}

Matrices scratch_like(Arena& arena, const ConstMatrices& m) {
  return arena.matrices(m.dtype, m.rows, m.cols, m.count);
}

template <class View>
View block(View m, int64_t row, int64_t num_rows, int64_t col,
           int64_t num_cols) {
  m.data += (row * m.row_stride + col) * size_of(m.dtype);
  m.rows = num_rows;
  m.cols = num_cols;
  return m;
}

DenseFactor left_rows(DenseFactor f, int64_t begin, int64_t size) {
  f.stored = f.op == Op::kNone ? block(f.stored, begin, size, 0, f.stored.cols)
                               : block(f.stored, 0, f.stored.rows, begin, size);
  return f;
}
DenseFactor right_columns(DenseFactor f, int64_t begin, int64_t size) {
  f.stored = f.op == Op::kNone ? block(f.stored, 0, f.stored.rows, begin, size)
                               : block(f.stored, begin, size, 0, f.stored.cols);
  return f;
}
int64_t inner_of_left(const DenseFactor& f) {
  return f.op == Op::kNone ? f.stored.cols : f.stored.rows;
}

enum class Side { kLeft, kRight };

// Parts of left and right that are multiplied with each other, smallest
// products first.
struct Parts {
  std::span<const uint8_t> left, right;
  int64_t least_side;  // from which it pays off
};
constexpr uint8_t kLeft3[] = {1, 0, 0};
constexpr uint8_t kRight3[] = {0, 1, 0};
constexpr uint8_t kLeft6[] = {2, 0, 1, 1, 0, 0};
constexpr uint8_t kRight6[] = {0, 2, 1, 0, 1, 0};
constexpr Parts kParts3{kLeft3, kRight3, 256};
constexpr Parts kParts6{kLeft6, kRight6, 512};

// Returns nullptr for plain fp32.
const Parts* parts_for(Products products, DType dtype, int64_t m, int64_t n,
                       int64_t k) {
  if (products == Products::kPlain || dtype != DType::kFp32) return nullptr;
  const Parts& parts = products == Products::kBf16x3 ? kParts3 : kParts6;
  return std::min({m, n, k}) >= parts.least_side ? &parts : nullptr;
}

}  // namespace

// A product in progress, with operands in the library's form.
class DenseProduct {
 public:
  DenseProduct(CudaEngine& engine, LtProducts& products, Matrices c,
               double alpha, double beta)
      : engine_(engine),
        products_(products),
        c_(c),
        beta_is_zero_(beta == 0),
        scope_(engine.arena()) {
    with_real_type(c.dtype, [&]<class Real>(Real) {
      alpha_real_ = engine.push<Real>(alpha);
      beta_real_ = engine.push<Real>(beta);
    });
  }

  const void* beta() const { return beta_real_; }

  // `parts` is nullptr for plain fp32.
  void take(ConstMatrices a, Op op_a, ConstMatrices b, Op op_b,
            const Parts* parts) {
    left_ = parts != nullptr ? in_parts(a, op_a, Side::kLeft, *parts)
                             : factor(a, op_a);
    right_ = parts != nullptr ? in_parts(b, op_b, Side::kRight, *parts)
                              : factor(b, op_b);
    to_ = c_;
    if (lies_as_its_shape_says(c_)) return;
    to_ = scratch_like(engine_.arena(), c_);
    if (!beta_is_zero_) engine_.copy(to_, c_);
  }

  // Computes the first `cols` columns of `size` rows from `begin` on.
  void multiply_rows(int64_t begin, int64_t size, int64_t cols) {
    const DenseFactor left = left_rows(left_, begin, size);
    const DenseFactor right = right_columns(right_, 0, cols);
    const Matrices to = block(to_, begin, size, 0, cols);
    const ProductShape shape{
        left.stored.dtype, to.dtype, size,      cols,       inner_of_left(left),
        left.op,           right.op, left.wide, right.wide, is_wide(c_)};
    products_.prepare(shape);
    if (engine_.dry("product", to, left.stored, left.op, right.stored, right.op,
                    beta_is_zero_))
      return;
    products_.run(shape, to, alpha_real_, left.stored, right.stored,
                  beta_real_);
  }

  // Computes the lower triangle, and possibly more above it.
  void multiply_lower() {
    constexpr int64_t kLarge = 1024;
    constexpr int64_t kStrips = 4;
    constexpr int64_t kStep = 64;
    const int64_t n = c_.rows;
    const int64_t strip =
        n < kLarge ? n : (n / kStrips + kStep - 1) / kStep * kStep;
    for (int64_t begin = 0; begin < n; begin += strip) {
      const int64_t size = std::min(strip, n - begin);
      multiply_rows(begin, size, begin + size);
    }
  }

  void give() {
    if (to_.data != c_.data) engine_.copy(c_, to_);
  }

 private:
  DenseFactor factor(ConstMatrices m, Op op) {
    const bool wide = is_wide(m);
    if (!lies_as_its_shape_says(m)) {
      const Matrices aligned = scratch_like(engine_.arena(), m);
      engine_.copy(aligned, m);
      m = aligned;
    }
    return {m, op, wide};
  }

  // Puts the parts next to each other, so that one product with a longer inner
  // dimension sums the products of all parts.
  DenseFactor in_parts(ConstMatrices m, Op op, Side side, const Parts& all) {
    const bool inner_by_rows = (op == Op::kNone) == (side == Side::kRight);
    const auto order = side == Side::kLeft ? all.left : all.right;
    const auto num_parts = static_cast<int64_t>(order.size());
    Matrices parts;
    parts.dtype = DType::kBf16;
    parts.rows = inner_by_rows ? num_parts * m.rows : m.rows;
    parts.cols = inner_by_rows ? m.cols : num_parts * m.cols;
    parts.row_stride = (parts.cols + 7) / 8 * 8;
    parts.count = m.count;
    parts.matrix_stride = parts.rows * parts.row_stride;
    parts.data = engine_.arena().take(parts.count * parts.matrix_stride * 2);
    launch_split(engine_, parts, m, inner_by_rows, order);
    return {parts, op, true};
  }

  CudaEngine& engine_;
  LtProducts& products_;
  Matrices c_;
  Matrices to_{};
  bool beta_is_zero_;
  const void* alpha_real_ = nullptr;
  const void* beta_real_ = nullptr;
  DenseFactor left_{};
  DenseFactor right_{};
  Arena::Scope scope_;
};

LtProducts& CudaEngine::lt_products() {
  if (lt_products_ == nullptr)
    lt_products_ = std::make_unique<LtProducts>(*this);
  return *lt_products_;
}

namespace {

// Returns the inner dimension.
int64_t check_sides(const Matrices& c, const ConstMatrices& a, Op op_a,
                    const ConstMatrices& b, Op op_b) {
  const int64_t inner = op_a == Op::kNone ? a.cols : a.rows;
  CANZONA_CHECK_EQ(c.rows, op_a == Op::kNone ? a.rows : a.cols, "rows");
  CANZONA_CHECK_EQ(c.cols, op_b == Op::kNone ? b.cols : b.rows, "columns");
  CANZONA_CHECK_EQ(inner, op_b == Op::kNone ? b.rows : b.cols, "inner side");
  CANZONA_CHECK_EQ(a.count, c.count, "matrices in a batch");
  CANZONA_CHECK_EQ(b.count, c.count, "matrices in a batch");
  return inner;
}

}  // namespace

void CudaEngine::bf16_product(Matrices c, ConstMatrices a, Op op_a,
                              ConstMatrices b, Op op_b) {
  const int64_t inner = check_sides(c, a, op_a, b, op_b);
  CANZONA_CHECK(a.dtype == DType::kBf16 && b.dtype == DType::kBf16 &&
                    c.dtype == DType::kFp32,
                "types of a product");
  CANZONA_CHECK(lies_as_its_shape_says(a) && lies_as_its_shape_says(b),
                "bf16 matrices that are not aligned");
  if (c.elements() == 0 || c.count == 0 || inner == 0) return;
  DenseProduct product(*this, lt_products(), c, 1, 0);
  product.take(a, op_a, b, op_b, nullptr);
  product.multiply_rows(0, c.rows, c.cols);
  product.give();
}

void CudaEngine::product(Matrices c, double alpha, ConstMatrices a, Op op_a,
                         ConstMatrices b, Op op_b, double beta) {
  const int64_t inner = check_sides(c, a, op_a, b, op_b);
  CANZONA_CHECK(a.dtype == c.dtype && b.dtype == c.dtype, "types of a product");
  if (c.elements() == 0 || c.count == 0) return;
  DenseProduct product(*this, lt_products(), c, alpha, beta);
  if (inner == 0) {
    launch_scale(*this, c, product.beta());
    return;
  }
  product.take(a, op_a, b, op_b,
               parts_for(products_, c.dtype, c.rows, c.cols, inner));
  product.multiply_rows(0, c.rows, c.cols);
  product.give();
}

void CudaEngine::symmetric_product(Matrices c, double alpha, ConstMatrices a,
                                   Op op_a, double beta) {
  lower_product(c, alpha, a, op_a, beta);
  launch_mirror(*this, c);
}

void CudaEngine::lower_product(Matrices c, double alpha, ConstMatrices a,
                               Op op_a, double beta) {
  const bool plain = op_a == Op::kNone;
  const int64_t inner = plain ? a.cols : a.rows;
  CANZONA_CHECK_EQ(c.rows, c.cols, "square");
  CANZONA_CHECK_EQ(c.rows, plain ? a.rows : a.cols, "rows");
  CANZONA_CHECK_EQ(a.count, c.count, "matrices in a batch");
  CANZONA_CHECK(a.dtype == c.dtype, "types of a product");
  if (c.elements() == 0 || c.count == 0) return;
  DenseProduct product(*this, lt_products(), c, alpha, beta);
  if (inner == 0) {
    launch_scale(*this, c, product.beta());
    return;
  }
  product.take(a, op_a, a, plain ? Op::kTranspose : Op::kNone,
               parts_for(products_, c.dtype, c.rows, c.cols, inner));
  product.multiply_lower();
  product.give();
}

void CudaEngine::commuting_product(Matrices c, ConstMatrices a,
                                   ConstMatrices b) {
  check_same_batch(c, a);
  check_same_batch(c, b);
  CANZONA_CHECK_EQ(c.rows, c.cols, "square");
  CANZONA_CHECK(a.dtype == c.dtype && b.dtype == c.dtype, "types of a product");
  if (c.elements() == 0 || c.count == 0) return;
  DenseProduct product(*this, lt_products(), c, 1, 0);
  product.take(a, Op::kNone, b, Op::kNone,
               parts_for(products_, c.dtype, c.rows, c.cols, c.rows));
  product.multiply_lower();
  product.give();
  launch_mirror(*this, c);
}

namespace {

template <class View>
View block_at(View m, int64_t row, int64_t col, int64_t rows, int64_t cols) {
  m.data += (row * m.row_stride + col) * size_of(m.dtype);
  m.rows = rows;
  m.cols = cols;
  return m;
}
template <class View>
View columns(View m, int64_t begin, int64_t size) {
  return block_at(m, 0, begin, m.rows, size);
}
template <class View>
View rows(View m, int64_t begin, int64_t size) {
  return block_at(m, begin, 0, size, m.cols);
}

// Calls work(begin, size) for strips of a triangle's side, so that most of its
// zeros are skipped; one strip if products would be too small.
template <class Work>
void for_each_strip(int64_t side, const Work& work) {
  constexpr int64_t kLarge = 1024;
  constexpr int64_t kStrips = 4;
  constexpr int64_t kStep = 64;
  const int64_t strip =
      side < kLarge ? side : (side / kStrips + kStep - 1) / kStep * kStep;
  for (int64_t begin = 0; begin < side; begin += strip)
    work(begin, std::min(strip, side - begin));
}

// c = a·l for a lower triangular l.
void times_lower(CudaEngine& engine, Matrices c, ConstMatrices a,
                 ConstMatrices l) {
  for_each_strip(l.rows, [&](int64_t begin, int64_t size) {
    const int64_t rest = l.rows - begin;
    engine.product(columns(c, begin, size), 1, columns(a, begin, rest),
                   Op::kNone, block_at(l, begin, begin, rest, size), Op::kNone,
                   0);
  });
}

// c = -l·b
void minus_lower_times(CudaEngine& engine, Matrices c, ConstMatrices l,
                       ConstMatrices b) {
  for_each_strip(l.rows, [&](int64_t begin, int64_t size) {
    const int64_t end = begin + size;
    engine.product(rows(c, begin, size), -1, block_at(l, begin, 0, size, end),
                   Op::kNone, rows(b, 0, end), Op::kNone, 0);
  });
}

// With G = [G₁ ·; G₂₁ G₂]: W = G₂₁·L₁⁻ᵀ is L's lower left part, L₂ is the
// factor of G₂ - W·Wᵀ, and the lower left part of the inverse is -L₂⁻¹·W·L₁⁻¹.
class Inversion {
 public:
  Inversion(CudaEngine& engine, Matrices gram, Matrices inverse, int32_t* info)
      : engine_(engine), gram_(gram), inverse_(inverse), info_(info) {}

  void run(int64_t begin, int64_t size) {
    if (size <= kFactorBlock) {
      launch_invert_block(engine_, block_at(gram_, begin, begin, size, size),
                          block_at(inverse_, begin, begin, size, size), info_);
      return;
    }
    const int64_t first =
        (size / 2 + kFactorBlock - 1) / kFactorBlock * kFactorBlock;
    const int64_t rest = size - first;
    const int64_t middle = begin + first;
    const Arena::Scope scope(engine_.arena());
    const Matrices w =
        engine_.arena().matrices(gram_.dtype, rest, first, gram_.count);
    const Matrices u =
        engine_.arena().matrices(gram_.dtype, rest, first, gram_.count);
    run(begin, first);
    const Matrices inverse1 = block_at(inverse_, begin, begin, first, first);
    times_transposed_inverse(
        engine_, w, block_at(gram_, middle, begin, rest, first), inverse1);
    engine_.lower_product(block_at(gram_, middle, middle, rest, rest), -1, w,
                          Op::kNone, 1);
    run(middle, rest);
    times_lower(engine_, u, w, inverse1);
    minus_lower_times(engine_, block_at(inverse_, middle, begin, rest, first),
                      block_at(inverse_, middle, middle, rest, rest), u);
  }

 private:
  CudaEngine& engine_;
  Matrices gram_;
  Matrices inverse_;
  int32_t* info_;
};

}  // namespace

void invert_factor(CudaEngine& engine, Matrices gram, Matrices inverse,
                   int32_t* info) {
  CANZONA_CHECK(gram.rows == gram.cols && inverse.rows == gram.rows &&
                    inverse.cols == gram.cols && inverse.count == gram.count,
                "the inverse of a factor of ", gram.rows, "x", gram.cols);
  engine.set_zero(reinterpret_cast<std::byte*>(info),
                  gram.count * static_cast<int64_t>(sizeof(*info)));
  engine.set_identity(inverse, 0.0);
  Inversion(engine, gram, inverse, info).run(0, gram.rows);
}

void times_transposed_inverse(CudaEngine& engine, Matrices x, ConstMatrices a,
                              ConstMatrices inverse) {
  for_each_strip(inverse.rows, [&](int64_t begin, int64_t size) {
    const int64_t end = begin + size;
    engine.product(columns(x, begin, size), 1, columns(a, 0, end), Op::kNone,
                   block_at(inverse, begin, 0, size, end), Op::kTranspose, 0);
  });
}

}  // namespace canzona::linalg
