// Runs the operations in the order of Newton–Schulz, and compares with the
// plain iteration in fp64.
#include <cmath>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include "canzona/linalg/cpu/bf16/test_bf16.h"

namespace canzona::linalg::bf16_newton_schulz_test {
namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr int kSteps = 5;

Dense iterate_in_fp64(const PlainRows& source) {
  Dense x = make_dense(source.rows, source.cols,
                       [&](int64_t i, int64_t j) { return source(i, j); });
  x = affine(1 / frobenius(x), x, 0);
  for (int step = 0; step < kSteps; ++step) {
    const Dense r = product(x, transpose(x));
    const Dense square = product(r, r);
    Dense p = make_dense(r.rows, r.cols, [&](int64_t i, int64_t j) {
      return kB * r(i, j) + kC * square(i, j) + (i == j ? kA : 0);
    });
    x = product(p, x);
  }
  return x;
}

class NewtonSchulzTest : public Bf16Test {
 protected:
  static constexpr int64_t kRows = 96, kCols = 160;

  Operand normalised(bool tall) {
    PlainRows source = tall ? transposed(source_) : source_;
    Operand x = algebra_->wide(arena_, kRows, kCols);
    const double norm =
        algebra_->load(x, {.source = source.view(), .transpose = tall});
    x.scale = 1 / norm;
    return x;
  }

  PlainRows by_steps(Half half, bool tall) {
    Operand x = normalised(tall), y = algebra_->wide(arena_, kRows, kCols);
    Operand r = algebra_->symmetric(arena_, kRows);
    Operand p = algebra_->symmetric(arena_, kRows);
    PlainRows out(tall ? kCols : kRows, tall ? kRows : kCols);
    for (int step = 1; step <= kSteps; ++step) {
      algebra_->gram(r, x, half);
      algebra_->polynomial(p, r, kA, kB, kC, half);
      if (step == kSteps) break;
      algebra_->multiply(y, p, x);
      std::swap(x, y);
    }
    algebra_->multiply_into({.out = out.view(), .transpose = tall}, p, x);
    return out;
  }

  // Segments end at `ends`, the last of which is kSteps.
  PlainRows by_gram(const std::vector<int>& ends, bool tall) {
    Operand x = normalised(tall), y = algebra_->wide(arena_, kRows, kCols);
    Operand r = algebra_->symmetric(arena_, kRows), p = r, q = r, t = r, u = r;
    for (Operand* operand : {&p, &q, &t, &u})
      *operand = algebra_->symmetric(arena_, kRows);
    PlainRows out(tall ? kCols : kRows, tall ? kRows : kCols);
    int step = 0;
    for (int end : ends) {
      algebra_->gram(r, x, Half::kTriangle);
      for (const int first = step; step < end; ++step) {
        algebra_->polynomial(p, r, kA, kB, kC, Half::kTriangle);
        if (step > first) {
          algebra_->commuting_product(t, q, p);
          std::swap(q, t);
        }
        if (step + 1 < end) {
          algebra_->sandwich(u, p, r, t);
          std::swap(r, u);
        }
        if (step == first) std::swap(q, p);
      }
      if (end == kSteps) break;
      algebra_->multiply(y, q, x);
      std::swap(x, y);
    }
    algebra_->multiply_into({.out = out.view(), .transpose = tall}, q, x);
    return out;
  }

  double error_of(const PlainRows& out) const {
    const bool tall = out.rows > out.cols;
    const Dense error = make_dense(kRows, kCols, [&](int64_t i, int64_t j) {
      return (tall ? out(j, i) : out(i, j)) - want_(i, j);
    });
    return frobenius(error) / frobenius(want_);
  }

  const PlainRows source_ = gaussian(kRows, kCols, 42);
  const Dense want_ = iterate_in_fp64(source_);
};

// Five steps of bf16. The Gram form stores Q' = Q - qI with q near 12 while Q
// itself is near I, so the rounding of the diagonal alone costs 2.7e-2, even
// with exact products.
constexpr double kTolerance = 2.5e-2;
constexpr double kGramTolerance = 3e-2;

TEST_P(NewtonSchulzTest, StepByStepFollowsTheFp64Iteration) {
  for (bool tall : {false, true}) {
    EXPECT_LT(error_of(by_steps(Half::kFull, tall)), kTolerance);
    EXPECT_LT(error_of(by_steps(Half::kTriangle, tall)), kTolerance);
  }
}

TEST_P(NewtonSchulzTest, GramFormWithRestartsFollowsTheFp64Iteration) {
  for (bool tall : {false, true})
    EXPECT_LT(error_of(by_gram({2, 4, 5}, tall)), kGramTolerance);
}

TEST_P(NewtonSchulzTest, TallIsTheTransposeOfWideInEveryBit) {
  EXPECT_EQ(bits_of(by_gram({2, 4, 5}, false)),
            bits_of(transposed(by_gram({2, 4, 5}, true))));
}

TEST_P(NewtonSchulzTest, RepeatingGivesTheSameBits) {
  EXPECT_EQ(bits_of(by_steps(Half::kTriangle, false)),
            bits_of(by_steps(Half::kTriangle, false)));
}

INSTANTIATE_TEST_SUITE_P(Kernels, NewtonSchulzTest,
                         testing::ValuesIn(usable_bf16_kernels().begin(),
                                           usable_bf16_kernels().end()),
                         kernel_name);

}  // namespace
}  // namespace canzona::linalg::bf16_newton_schulz_test
