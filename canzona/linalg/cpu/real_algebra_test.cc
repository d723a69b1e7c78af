#include "canzona/linalg/cpu/cpu_algebra.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/linalg/cpu/test_support.h"

namespace canzona::linalg::real_algebra_test {
namespace {

struct Shape {
  int64_t rows;
  int64_t cols;
};
constexpr Shape kShapes[] = {{0, 0},   {0, 5},   {1, 1},    {1, 9},
                             {16, 16}, {17, 40}, {97, 130}, {128, 300}};

// Loads matrices and reads operands back as plain ones.
template <class Real>
class RealAlgebra : public testing::Test {
 protected:
  struct Source {
    Batch<Real> matrix;
    bool tall;

    Load load() const {
      Load result;
      result.source = matrix.view();
      result.transpose = tall;
      return result;
    }
    // The matrix as the algebra sees it.
    Plain wide() const {
      return tall ? transposed(plain(matrix)) : plain(matrix);
    }
  };

  static Source random_source(const Shape& shape, bool tall, uint32_t seed = 1,
                              int64_t gap = 3) {
    Batch<Real> matrix(tall ? shape.cols : shape.rows,
                       tall ? shape.rows : shape.cols, 1, gap);
    matrix.randomise(seed);
    return {matrix, tall};
  }

  Operand loaded(const Source& source) {
    const Plain wide = source.wide();
    Operand x = algebra_->wide(arena_, wide.rows, wide.cols);
    algebra_->load(x, source.load());
    return x;
  }

  // The identity, as a polynomial.
  Operand unit(int64_t side) {
    Operand x = loaded(random_source({side, side}, false));
    Operand r = algebra_->symmetric(arena_, side);
    Operand one = algebra_->symmetric(arena_, side);
    algebra_->gram(r, x, Half::kTriangle);
    algebra_->polynomial(one, r, 1, 0, 0, Half::kTriangle);
    return one;
  }

  // R = XXᵀ/n of a random X.
  Operand random_gram(int64_t side, uint32_t seed) {
    Operand x = loaded(random_source({side, side + 20}, false, seed));
    x.scale = 1 / std::sqrt(static_cast<double>(side + 20));
    Operand r = algebra_->symmetric(arena_, side);
    algebra_->gram(r, x, Half::kTriangle);
    return r;
  }

  Plain read_wide(const Operand& x) { return stored(unit(x.rows), x, false); }

  Plain read(const Operand& r) {
    Source source = random_source({r.rows, r.rows}, false);
    source.matrix.fill([](Real& e, int64_t, int64_t i, int64_t j) {
      e = i == j ? Real{1} : Real{0};
    });
    return stored(r, loaded(source), false);
  }

  // Returns Q·X as multiply_into stores it, transposed back if necessary.
  Plain stored(const Operand& q, const Operand& x, bool transpose) {
    Batch<Real> out(transpose ? x.cols : x.rows, transpose ? x.rows : x.cols, 1,
                    2);
    algebra_->multiply_into({out.view(), nullptr, transpose}, q, x);
    EXPECT_TRUE(out.marks_untouched());
    return transpose ? transposed(plain(out)) : plain(out);
  }

  static void expect_close(const Plain& a, const Plain& b, double scale) {
    EXPECT_LE(distance(a, b), tolerance<Real>() * (scale + 1))
        << a.rows << "x" << a.cols;
  }

  Arena arena_;
  Arena::Scope scope_{arena_};
  std::unique_ptr<CpuAlgebra> algebra_ = make_real_algebra<Real>();
};
TYPED_TEST_SUITE(RealAlgebra, RealTypes);

TYPED_TEST(RealAlgebra, LoadsWhatIsThereAndItsNorm) {
  for (const Shape& shape : kShapes) {
    for (bool tall : {false, true}) {
      const auto source = this->random_source(shape, tall);
      Operand x = this->algebra_->wide(this->arena_, shape.rows, shape.cols);
      const double loaded = this->algebra_->load(x, source.load());
      const double expected = norm(source.wide());
      EXPECT_NEAR(loaded, expected, 1e-12 * expected);
      EXPECT_EQ(x.scale, 1);
      EXPECT_EQ(this->read_wide(x).values, source.wide().values);
    }
  }
}

TYPED_TEST(RealAlgebra, TheNormDoesNotDependOnGapsBetweenRows) {
  const Shape shape = {37, 211};
  const auto with_gaps = this->random_source(shape, false, 1, 3);
  const auto without = this->random_source(shape, false, 1, 0);
  Operand x = this->algebra_->wide(this->arena_, shape.rows, shape.cols);
  EXPECT_EQ(this->algebra_->load(x, with_gaps.load()),
            this->algebra_->load(x, without.load()));
}

TYPED_TEST(RealAlgebra, LoadUpdatesMomentumAndRoundsEveryOperation) {
  const auto real = [](double x) { return static_cast<TypeParam>(x); };
  for (bool tall : {false, true}) {
    const auto source = this->random_source({20, 45}, tall);
    Batch<TypeParam> momentum = source.matrix;
    momentum.randomise(2);
    const Batch<TypeParam> before = momentum;
    Load load = source.load();
    load.momentum = momentum.view();
    load.blend = {0.95, 0.05, 0.3, 0.7};
    load.prescale = 0.25;
    Operand x = this->algebra_->wide(this->arena_, 20, 45);
    this->algebra_->load(x, load);
    const Plain found = this->read_wide(x);
    const Plain blended = tall ? transposed(found) : found;
    for (int64_t i = 0; i < before.rows(); ++i) {
      for (int64_t j = 0; j < before.cols(); ++j) {
        const TypeParam g = source.matrix.at(0, i, j);
        const volatile TypeParam kept = real(0.95) * before.at(0, i, j);
        const volatile TypeParam added = real(0.05) * g;
        const TypeParam b = kept + added;
        const volatile TypeParam from_grad = real(0.3) * g;
        const volatile TypeParam from_momentum = real(0.7) * b;
        ASSERT_EQ(momentum.at(0, i, j), b);
        ASSERT_EQ(blended.at(i, j), (from_grad + from_momentum) / 4);
      }
    }
    EXPECT_TRUE(momentum.marks_untouched());
  }
}

TYPED_TEST(RealAlgebra, LoadTellsOfValuesThatAreNotFinite) {
  for (TypeParam bad : {std::numeric_limits<TypeParam>::quiet_NaN(),
                        -std::numeric_limits<TypeParam>::infinity()}) {
    auto source = this->random_source({9, 50}, false);
    source.matrix.at(0, 8, 49) = bad;
    Operand x = this->algebra_->wide(this->arena_, 9, 50);
    EXPECT_FALSE(std::isfinite(this->algebra_->load(x, source.load())));
  }
}

TYPED_TEST(RealAlgebra, GramIsThatOfTheDefinition) {
  for (const Shape& shape : kShapes) {
    for (bool tall : {false, true}) {
      for (Half half : {Half::kFull, Half::kTriangle}) {
        const auto source = this->random_source(shape, tall);
        Operand x = this->loaded(source);
        x.scale = 0.5;
        Operand r = this->algebra_->symmetric(this->arena_, shape.rows);
        this->algebra_->gram(r, x, half);
        const Plain found = this->read(r);
        const Plain square = times(source.wide(), transposed(source.wide()));
        this->expect_close(found, sum(0.25, square, 0, square), norm(square));
        EXPECT_TRUE(exactly_symmetric(found));
        EXPECT_EQ(r.identity, 0);
      }
    }
  }
}

TYPED_TEST(RealAlgebra, PolynomialIsThatOfTheDefinition) {
  for (int64_t side : {0, 1, 16, 33, 130}) {
    for (Half half : {Half::kFull, Half::kTriangle}) {
      for (double c : {0.0, 2.0}) {
        Operand r = this->random_gram(side, 3);
        Operand p = this->algebra_->symmetric(this->arena_, side);
        this->algebra_->polynomial(p, r, 3.4, -4.75, c, half);
        const Plain rr = this->read(r);
        const Plain found = this->read(p);
        const Plain expected =
            sum(1, sum(3.4, identity(side), -4.75, rr), c, times(rr, rr));
        this->expect_close(found, expected, norm(expected) + norm(rr));
        EXPECT_TRUE(exactly_symmetric(found));
      }
    }
  }
}

TYPED_TEST(RealAlgebra, ProductsOfCommutingMatricesAreSymmetric) {
  for (int64_t side : {0, 1, 16, 97, 210}) {
    Operand r = this->random_gram(side, 4);
    Operand p = this->algebra_->symmetric(this->arena_, side);
    Operand d = this->algebra_->symmetric(this->arena_, side);
    Operand u = this->algebra_->symmetric(this->arena_, side);
    Operand scratch = this->algebra_->symmetric(this->arena_, side);
    this->algebra_->polynomial(p, r, 3.4, -4.75, 2, Half::kTriangle);
    this->algebra_->commuting_product(d, p, r);
    this->algebra_->sandwich(u, p, r, scratch);
    const Plain pp = this->read(p);
    const Plain product = times(pp, this->read(r));
    this->expect_close(this->read(d), product, norm(pp) * norm(product));
    this->expect_close(this->read(u), times(product, pp),
                       norm(pp) * norm(pp) * norm(product));
    EXPECT_TRUE(exactly_symmetric(this->read(d)));
    EXPECT_TRUE(exactly_symmetric(this->read(u)));
  }
}

TYPED_TEST(RealAlgebra, MultiplyIsThatOfTheDefinitionEitherWayRound) {
  for (const Shape& shape : kShapes) {
    for (bool tall : {false, true}) {
      const auto source = this->random_source(shape, tall, 5);
      Operand x = this->loaded(source);
      x.scale = 2;
      Operand q = this->random_gram(shape.rows, 6);
      Operand y = this->algebra_->wide(this->arena_, shape.rows, shape.cols);
      this->algebra_->multiply(y, q, x);
      EXPECT_EQ(y.scale, 1);
      const Plain qx = times(this->read(q), source.wide());
      const Plain expected = sum(2, qx, 0, qx);
      this->expect_close(this->read_wide(y), expected, norm(expected));
      for (bool transpose : {false, true})
        this->expect_close(this->stored(q, x, transpose), expected,
                           norm(expected));
    }
  }
}

TYPED_TEST(RealAlgebra, ApplyingGivesTheBitsOfStoringFirst) {
  const auto real = [](double x) { return static_cast<TypeParam>(x); };
  const Apply apply = {0.99, 0.02, 0.999};
  for (bool transpose : {false, true}) {
    const auto source = this->random_source({33, 70}, transpose, 5);
    Operand x = this->loaded(source);
    Operand q = this->random_gram(33, 6);
    Batch<TypeParam> update = source.matrix;
    Batch<TypeParam> weights = source.matrix;
    weights.randomise(9);
    const Batch<TypeParam> before = weights;
    this->algebra_->multiply_into({update.view(), nullptr, transpose}, q, x);
    this->algebra_->multiply_into({weights.view(), &apply, transpose}, q, x);
    for (int64_t i = 0; i < weights.rows(); ++i) {
      for (int64_t j = 0; j < weights.cols(); ++j) {
        const volatile TypeParam kept = before.at(0, i, j) * real(0.99);
        const volatile TypeParam step = real(0.02) * update.at(0, i, j);
        const volatile TypeParam moved = kept - step;
        ASSERT_EQ(weights.at(0, i, j), moved * real(0.999));
      }
    }
    EXPECT_TRUE(weights.marks_untouched());
  }
}

TYPED_TEST(RealAlgebra, NormAndRescale) {
  for (int64_t side : {0, 1, 40}) {
    Operand r = this->random_gram(side, 8);
    const Plain before = this->read(r);
    EXPECT_NEAR(this->algebra_->norm(r), norm(before), 1e-12);
    this->algebra_->rescale(r, 0.125);
    EXPECT_EQ(this->read(r).values, sum(0.125, before, 0, before).values);
  }
}

TYPED_TEST(RealAlgebra, RefusesTallOperandsAndWrongSources) {
  EXPECT_THROW(this->algebra_->wide(this->arena_, 3, 2), InternalError);
  Operand x = this->algebra_->wide(this->arena_, 2, 3);
  const auto source = this->random_source({2, 4}, false);
  EXPECT_THROW(this->algebra_->load(x, source.load()), InternalError);
}

}  // namespace
}  // namespace canzona::linalg::real_algebra_test
