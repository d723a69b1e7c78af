// Compares every product with fp64 sums of the stored values, for every kernel.
#include "canzona/linalg/cpu/cpu_algebra.h"

#include <algorithm>
#include <functional>
#include <vector>

#include <gmock/gmock.h>
#include "canzona/base/error.h"
#include "canzona/linalg/cpu/bf16/test_bf16.h"

namespace canzona::linalg::algebra_test {
namespace {

// A result differs from the fp64 sum by one rounding to bf16 (half of 2^-7)
// and by fp32 sums of at most a few hundred terms.
constexpr double kRounding = 1.0 / 256 * 1.001;
constexpr double kSums = 1e-5;

// `magnitude` is the same sum over absolute values. With `lower`, only j <= i
// is compared, as the rest is a mirror.
void expect_close(const Dense& got, const Dense& want, const Dense& magnitude,
                  double rounding, bool lower = false) {
  ASSERT_EQ(got.rows, want.rows);
  ASSERT_EQ(got.cols, want.cols);
  for (int64_t i = 0; i < got.rows; ++i)
    for (int64_t j = 0; j < (lower ? i + 1 : got.cols); ++j)
      ASSERT_NEAR(got(i, j), want(i, j),
                  rounding * std::abs(want(i, j)) + kSums * magnitude(i, j))
          << "at " << i << ", " << j << " of " << got.rows << "x" << got.cols;
}

void for_wide_shapes(const std::function<void(int64_t, int64_t)>& body) {
  for (int64_t m : sizes())
    for (int64_t n : sizes())
      if (m <= n) body(m, n);
}

class AlgebraTest : public Bf16Test {
 protected:
  Operand symmetric(int64_t rows) { return algebra_->symmetric(arena_, rows); }

  // XXᵀ / n of a Gaussian X: eigenvalues about 1.
  Operand gram_of_gaussian(int64_t m, int64_t n, unsigned seed = 1) {
    Operand x = load(gaussian(m, n, seed));
    x.scale = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(n, 1)));
    Operand r = symmetric(m);
    algebra_->gram(r, x, Half::kTriangle);
    return r;
  }

  Operand polynomial_of(const Operand& r, double a, double b, double c) {
    Operand p = symmetric(r.rows);
    algebra_->polynomial(p, r, a, b, c, Half::kTriangle);
    return p;
  }

  // d = a·b up to what d stores separately.
  void expect_product(const Operand& d, const Operand& a, const Operand& b) {
    const Dense left = meaning(a), right = meaning(b);
    const Dense want = affine(1, product(left, right), -d.identity);
    expect_close(affine(d.scale, stored_symmetric(d), 0), want,
                 product(absolute(left), absolute(right)), kRounding, true);
  }
};

TEST_P(AlgebraTest, GramIsXTimesItsTranspose) {
  for_wide_shapes([&](int64_t m, int64_t n) {
    Arena::Scope scope(arena_);
    Operand x = load(gaussian(m, n, 7));
    x.scale = 0.375;
    const Dense dense = affine(x.scale, stored_wide(x), 0);
    const Dense want = product(dense, transpose(dense));
    const Dense magnitude =
        product(absolute(dense), transpose(absolute(dense)));
    for (Half half : {Half::kFull, Half::kTriangle}) {
      Operand r = symmetric(m);
      r.identity = 5;
      algebra_->gram(r, x, half);
      EXPECT_EQ(r.identity, 0);
      expect_close(meaning(r), want, magnitude, kRounding);
    }
  });
}

TEST_P(AlgebraTest, PolynomialKeepsTheIdentityApart) {
  for (int64_t m : sizes()) {
    Arena::Scope scope(arena_);
    Operand r = gram_of_gaussian(m, 2 * m);
    algebra_->rescale(r, 0.8);
    const Dense dense = meaning(r);
    const Dense square = product(dense, dense);
    const Dense want = make_dense(m, m, [&](int64_t i, int64_t j) {
      return -4.775 * dense(i, j) + 2.0315 * square(i, j);
    });
    for (Half half : {Half::kFull, Half::kTriangle}) {
      Operand p = symmetric(m);
      algebra_->polynomial(p, r, 3.4445, -4.775, 2.0315, half);
      EXPECT_EQ(p.identity, 3.4445);
      const Dense terms = make_dense(m, m, [&](int64_t i, int64_t j) {
        return 5 * std::abs(dense(i, j)) + 20 * m * 1.0;
      });
      expect_close(affine(p.scale, stored_symmetric(p), 0), want, terms,
                   kRounding);
    }
  }
}

TEST_P(AlgebraTest, PolynomialOfDegreeOneIsExact) {
  for (int64_t m : sizes()) {
    Arena::Scope scope(arena_);
    const Operand r = gram_of_gaussian(m, 2 * m);
    const Operand p = polynomial_of(r, 1.5, -0.7, 0);
    EXPECT_EQ(meaning(p).values, affine(-0.7, meaning(r), 1.5).values);
  }
}

TEST_P(AlgebraTest, CommutingProductMultipliesIdentitiesToo) {
  for (int64_t m : sizes()) {
    Arena::Scope scope(arena_);
    const Operand r = gram_of_gaussian(m, 2 * m);
    const Operand a = polynomial_of(r, 3.4445, -4.775, 2.0315);
    Operand b = polynomial_of(r, 0, 0.5, 0.25);
    algebra_->rescale(b, 3);
    for (double identity : {0.0, -1.25}) {
      b.identity = identity;
      Operand d = symmetric(m);
      algebra_->commuting_product(d, a, b);
      EXPECT_EQ(d.identity, 3.4445 * identity);
      expect_product(d, a, b);
    }
  }
}

TEST_P(AlgebraTest, SandwichIsTwoProducts) {
  for (int64_t m : sizes()) {
    Arena::Scope scope(arena_);
    Operand r = gram_of_gaussian(m, 2 * m);
    algebra_->rescale(r, 0.7);
    const Operand p = polynomial_of(r, 1.25, -0.5, 0.125);
    Operand u = symmetric(m), scratch = symmetric(m);
    algebra_->sandwich(u, p, r, scratch);
    EXPECT_EQ(u.identity, 0);
    expect_product(scratch, r, p);
    expect_product(u, scratch, p);
  }
}

TEST_P(AlgebraTest, MultiplyLeavesAllFormats) {
  for_wide_shapes([&](int64_t m, int64_t n) {
    Arena::Scope scope(arena_);
    const Operand q = polynomial_of(gram_of_gaussian(m, n, 2), 3, -1, 0.25);
    Operand x = load(gaussian(m, n, 3));
    x.scale = 0.6;
    const Dense left = meaning(q);
    const Dense right = affine(x.scale, stored_wide(x), 0);
    Operand y = algebra_->wide(arena_, m, n);
    y.scale = 9;
    algebra_->multiply(y, q, x);
    EXPECT_EQ(y.scale, 1);
    expect_close(stored_wide(y), product(left, right),
                 product(absolute(left), absolute(right)), kRounding);
  });
}

TEST_P(AlgebraTest, MultiplyIntoWritesOnlyTheMatrix) {
  for_wide_shapes([&](int64_t m, int64_t n) {
    Arena::Scope scope(arena_);
    const Operand q = polynomial_of(gram_of_gaussian(m, n, 2), 3, -1, 0.25);
    Operand x = load(gaussian(m, n, 3));
    x.scale = 0.6;
    const Dense left = meaning(q);
    const Dense right = affine(x.scale, stored_wide(x), 0);
    const Dense want = product(left, right);
    const Dense magnitude = product(absolute(left), absolute(right));
    for (bool tall : {false, true}) {
      PlainRows out(tall ? n : m, tall ? m : n, 3);
      algebra_->multiply_into({.out = out.view(), .transpose = tall}, q, x);
      const Dense got = make_dense(m, n, [&](int64_t i, int64_t j) {
        return tall ? out(j, i) : out(i, j);
      });
      expect_close(got, want, magnitude, 0);
      for (int64_t i = 0; i < out.rows; ++i)
        for (int64_t j = out.cols; j < out.stride; ++j)
          ASSERT_EQ(out(i, j), PlainRows::kMark);
    }
  });
}

TEST_P(AlgebraTest, ApplyingAtOnceHasTheBitsOfApplyingLater) {
  const Apply apply{.keep_before = 0.9997, .step = 0.0213, .keep_after = 1.01};
  const auto before = static_cast<float>(apply.keep_before);
  const auto step = static_cast<float>(apply.step);
  const auto after = static_cast<float>(apply.keep_after);
  for (auto [m, n] : {std::pair<int64_t, int64_t>{1, 1}, {17, 65}, {100, 130}})
    for (bool tall : {false, true}) {
      Arena::Scope scope(arena_);
      const Operand q = polynomial_of(gram_of_gaussian(m, n, 2), 3, -1, 0.25);
      Operand x = load(gaussian(m, n, 3));
      x.scale = 0.3;
      PlainRows weights = gaussian(tall ? n : m, tall ? m : n, 4, 5);
      PlainRows later = weights, update = weights;
      algebra_->multiply_into(
          {.out = weights.view(), .apply = &apply, .transpose = tall}, q, x);
      algebra_->multiply_into({.out = update.view(), .transpose = tall}, q, x);
      for (int64_t i = 0; i < later.rows; ++i)
        for (int64_t j = 0; j < later.cols; ++j) {
          const float kept = later(i, j) * before;
          const float change = step * update(i, j);
          const float moved = kept - change;
          later(i, j) = moved * after;
        }
      EXPECT_EQ(bits_of(weights), bits_of(later)) << m << "x" << n;
    }
}

TEST_P(AlgebraTest, NormIsThatOfTheMeaning) {
  for (int64_t m : sizes()) {
    Arena::Scope scope(arena_);
    Operand r = gram_of_gaussian(m, 2 * m);
    const double norm = frobenius(meaning(r));
    EXPECT_NEAR(algebra_->norm(r), norm, 1e-12 * norm);
    algebra_->rescale(r, -0.3);
    EXPECT_NEAR(algebra_->norm(r), 0.3 * norm, 1e-12 * norm);
    EXPECT_NEAR(frobenius(meaning(r)), 0.3 * norm, 1e-12 * norm);
  }
}

TEST_P(AlgebraTest, DeepSumsAreCutWithoutLoss) {
  Operand x = load(gaussian(70, 7000, 11));
  x.scale = 1 / 7000.0;
  const Dense dense = affine(x.scale, stored_wide(x), 0);
  Operand r = symmetric(70);
  algebra_->gram(r, x, Half::kTriangle);
  expect_close(meaning(r), product(dense, transpose(dense)),
               product(absolute(dense), transpose(absolute(dense))), kRounding);
}

TEST_P(AlgebraTest, FactorsAreNotOverwritten) {
  Operand r = gram_of_gaussian(4, 8);
  EXPECT_THROW(algebra_->commuting_product(r, r, r), InternalError);
  EXPECT_THROW(algebra_->polynomial(r, r, 1, 1, 1, Half::kTriangle),
               InternalError);
}

INSTANTIATE_TEST_SUITE_P(Kernels, AlgebraTest,
                         testing::ValuesIn(usable_bf16_kernels().begin(),
                                           usable_bf16_kernels().end()),
                         kernel_name);

// Few small integers: every sum is exact, in any order.
PlainRows sparse_integers(int64_t rows, int64_t cols) {
  std::mt19937 engine(5);
  return make_plain(rows, cols, 0, [&](int64_t, int64_t) {
    const unsigned draw = engine() % 64;
    return draw < 3 ? 1 : draw < 5 ? -1 : 0;
  });
}

// All results of every operation, as bits.
std::vector<uint32_t> trace_of(CpuAlgebra& algebra, int64_t m, int64_t n) {
  Arena arena;
  Arena::Scope scope(arena);
  std::vector<uint32_t> trace;
  const auto record = [&](const Operand& operand, int num_formats) {
    const StoredBlocks blocks(operand, num_formats);
    trace.insert(trace.end(), blocks.words().begin(), blocks.words().end());
  };
  PlainRows source = sparse_integers(m, n);
  Operand x = algebra.wide(arena, m, n), y = algebra.wide(arena, m, n);
  algebra.load(x, {.source = source.view()});
  Operand r = algebra.symmetric(arena, m), p = algebra.symmetric(arena, m);
  Operand d = algebra.symmetric(arena, m), u = algebra.symmetric(arena, m);
  for (Half half : {Half::kFull, Half::kTriangle}) {
    algebra.gram(r, x, half);
    record(r, 2);
    algebra.polynomial(p, r, 2, -3, 1, half);
    record(p, 2);
  }
  algebra.commuting_product(d, p, r);
  record(d, 2);
  algebra.sandwich(u, r, p, d);
  record(u, 2);
  algebra.multiply(y, p, x);
  record(y, 3);
  for (bool tall : {false, true}) {
    PlainRows out(tall ? n : m, tall ? m : n);
    algebra.multiply_into({.out = out.view(), .transpose = tall}, p, x);
    const std::vector<uint32_t> bits = bits_of(out);
    trace.insert(trace.end(), bits.begin(), bits.end());
  }
  return trace;
}

TEST(Bf16Kernels, AgreeInEveryBitWhereSumsAreExact) {
  const auto reference = make_bf16_algebra(Bf16Kernel::kPortable);
  for (Bf16Kernel kernel : usable_bf16_kernels()) {
    const auto algebra = make_bf16_algebra(kernel);
    for_wide_shapes([&](int64_t m, int64_t n) {
      EXPECT_EQ(trace_of(*algebra, m, n), trace_of(*reference, m, n))
          << to_string(kernel) << " " << m << "x" << n;
    });
  }
}

TEST(Bf16Kernels, PortableIsAlwaysUsableAndTheLastChoice) {
  ASSERT_FALSE(usable_bf16_kernels().empty());
  EXPECT_EQ(usable_bf16_kernels().back(), Bf16Kernel::kPortable);
}

TEST(Bf16Kernels, UnusableOnesAreRefused) {
  const auto usable = usable_bf16_kernels();
  for (Bf16Kernel kernel :
       {Bf16Kernel::kAmx, Bf16Kernel::kAvx512, Bf16Kernel::kPortable}) {
    if (std::ranges::find(usable, kernel) != usable.end())
      EXPECT_NE(make_bf16_algebra(kernel), nullptr);
    else
      EXPECT_THROW(make_bf16_algebra(kernel), UsageError);
  }
}

}  // namespace
}  // namespace canzona::linalg::algebra_test
