#include "canzona/linalg/cuda/inverse_factor.h"

#include "canzona/base/check.h"

namespace canzona {
namespace {

Matrices block(Matrices m, int64_t row, int64_t col, int64_t rows,
               int64_t cols) {
  m.data += (row * m.row_stride + col) * size_of(m.dtype);
  m.rows = rows;
  m.cols = cols;
  return m;
}

// With G = [G₁ ·; G₂₁ G₂]: W = G₂₁·L₁⁻ᵀ is L's lower left part, L₂ is the
// factor of G₂ - W·Wᵀ, and the lower left part of the inverse is -L₂⁻¹·W·L₁⁻¹.
class Inversion {
 public:
  Inversion(CudaEngine& engine, Matrices gram, Matrices inverse, int32_t* info)
      : engine_(engine), gram_(gram), inverse_(inverse), info_(info) {}

  void run(int64_t begin, int64_t size) {
    if (size <= kFactorBlock) {
      launch_invert_block(engine_, block(gram_, begin, begin, size, size),
                          block(inverse_, begin, begin, size, size), info_);
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
    const Matrices inverse1 = block(inverse_, begin, begin, first, first);
    engine_.product(w, 1, block(gram_, middle, begin, rest, first), Op::kNone,
                    inverse1, Op::kTranspose, 0);
    engine_.product(block(gram_, middle, middle, rest, rest), -1, w, Op::kNone,
                    w, Op::kTranspose, 1);
    run(middle, rest);
    engine_.product(u, 1, w, Op::kNone, inverse1, Op::kNone, 0);
    engine_.product(block(inverse_, middle, begin, rest, first), -1,
                    block(inverse_, middle, middle, rest, rest), Op::kNone, u,
                    Op::kNone, 0);
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

}  // namespace canzona
