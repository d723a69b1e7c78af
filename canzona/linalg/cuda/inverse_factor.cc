#include "canzona/linalg/cuda/kernels.h"

#include <algorithm>

#include "canzona/base/check.h"

namespace canzona {
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

}  // namespace canzona
