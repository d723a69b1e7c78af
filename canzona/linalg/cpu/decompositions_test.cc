#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "canzona/base/error.h"
#include "canzona/linalg/cpu/test_support.h"
#include "canzona/linalg/engine.h"

namespace canzona::linalg::cpu_decompositions_test {
namespace {

template <class Real>
class Decompositions : public testing::Test {
 protected:
  // Measures how far the columns are from orthonormal.
  static double skewness(const Batch<Real>& q) {
    const Plain columns = plain(q);
    return distance(times(transposed(columns), columns),
                    identity(columns.cols));
  }

  static double allowed(int64_t side) {
    return tolerance<Real>() * static_cast<double>(side + 1);
  }

  std::unique_ptr<Engine> engine_ = make_cpu_engine();
  std::array<bool, 1> done_ = {};
};
TYPED_TEST_SUITE(Decompositions, RealTypes);

TYPED_TEST(Decompositions, EighGivesVectorsAndAscendingValues) {
  for (int64_t n : {0, 1, 2, 17, 64, 129}) {
    Batch<TypeParam> a(n, n, 1, 3);
    Batch<TypeParam> values(1, n);
    a.randomise(static_cast<uint32_t>(n)).symmetrise();
    const Plain before = plain(a);
    this->engine_->eigh(a, values, this->done_);
    ASSERT_TRUE(this->done_[0]) << n;
    Plain diagonal(n, n);
    for (int64_t i = 0; i < n; ++i) {
      diagonal.at(i, i) = values.at(0, 0, i);
      EXPECT_LE(values.at(0, 0, std::max<int64_t>(i - 1, 0)),
                values.at(0, 0, i));
    }
    const Plain v = plain(a);
    EXPECT_LE(distance(times(times(v, diagonal), transposed(v)), before),
              this->allowed(n) * (norm(before) + 1))
        << n;
    EXPECT_LE(this->skewness(a), this->allowed(n)) << n;
    EXPECT_TRUE(a.marks_untouched());
  }
}

// R = QᵀA must be upper triangular and reproduce A.
void expect_factor(const Plain& q, const Plain& a, double allowed,
                   bool positive) {
  const Plain r = times(transposed(q), a);
  EXPECT_LE(distance(times(q, r), a), allowed * (norm(a) + 1));
  for (int64_t i = 0; i < r.rows; ++i) {
    EXPECT_TRUE(!positive || r.at(i, i) > 0);
    for (int64_t j = 0; j < i; ++j)
      EXPECT_NEAR(r.at(i, j), 0, allowed * (norm(a) + 1));
  }
}

constexpr int64_t kTall[][2] = {{3, 0},   {1, 1},   {5, 1},    {17, 17},
                                {40, 13}, {33, 32}, {130, 100}};

TYPED_TEST(Decompositions, QrGivesOrthonormalColumnsOfTheSameSpan) {
  for (const auto& [rows, cols] : kTall) {
    Batch<TypeParam> a(rows, cols, 1, 1);
    a.randomise(4);
    const Plain before = plain(a);
    this->engine_->qr(a, this->done_);
    ASSERT_TRUE(this->done_[0]);
    EXPECT_LE(this->skewness(a), this->allowed(cols));
    expect_factor(plain(a), before, this->allowed(cols), false);
    EXPECT_TRUE(a.marks_untouched());
  }
}

TYPED_TEST(Decompositions, CholeskyQrGivesTheFactorOfAPositiveDiagonal) {
  for (const auto& [rows, cols] : kTall) {
    Batch<TypeParam> a(rows, cols, 1, 1);
    a.randomise(4);
    const Plain before = plain(a);
    this->engine_->cholesky_qr(a, this->done_);
    ASSERT_TRUE(this->done_[0]) << rows << "x" << cols;
    EXPECT_LE(this->skewness(a), this->allowed(cols));
    expect_factor(plain(a), before, 10 * this->allowed(cols), true);
    EXPECT_TRUE(a.marks_untouched());
  }
}

TYPED_TEST(Decompositions, CholeskyQrDoesNotMindTheLengthsOfColumns) {
  Batch<TypeParam> a(60, 20);
  a.randomise(8).fill([](TypeParam& x, int64_t, int64_t, int64_t j) {
    x = std::ldexp(x, static_cast<int>(3 * j) - 40);
  });
  this->engine_->cholesky_qr(a, this->done_);
  ASSERT_TRUE(this->done_[0]);
  EXPECT_LE(this->skewness(a), this->allowed(20));
}

// Columns so close to one direction that AᵀA alone has no factor.
TYPED_TEST(Decompositions, CholeskyQrTakesColumnsThatNeedTheShift) {
  const auto apart = static_cast<TypeParam>(
      std::sqrt(std::numeric_limits<TypeParam>::epsilon()) / 4);
  Batch<TypeParam> a(90, 60);
  a.randomise(8).fill(
      [&](TypeParam& x, int64_t, int64_t, int64_t) { x = 1 + apart * x; });
  this->engine_->cholesky_qr(a, this->done_);
  ASSERT_TRUE(this->done_[0]);
  EXPECT_LE(this->skewness(a), this->allowed(60));
}

TYPED_TEST(Decompositions, CholeskyQrWorksAtTheEndsOfTheRange) {
  using Limits = std::numeric_limits<TypeParam>;
  for (const int exponent : {Limits::max_exponent - 2, Limits::min_exponent}) {
    Batch<TypeParam> a(30, 9);
    a.randomise(8).fill([&](TypeParam& x, int64_t, int64_t, int64_t) {
      x = std::ldexp(x, exponent);
    });
    this->engine_->cholesky_qr(a, this->done_);
    ASSERT_TRUE(this->done_[0]) << exponent;
    EXPECT_LE(this->skewness(a), 10 * this->allowed(9)) << exponent;
  }
}

TYPED_TEST(Decompositions, CholeskyQrFailsOnDependentColumns) {
  for (int64_t side : {2, 9, 40, 150}) {
    for (uint32_t seed : {1U, 2U, 3U}) {
      Batch<TypeParam> a(side + 3, side);
      a.randomise(seed).fill([&](TypeParam& x, int64_t, int64_t i, int64_t j) {
        if (j == side - 1)
          x = a.at(0, i, 0) + (side > 2 ? a.at(0, i, side / 2) : TypeParam{0});
      });
      this->engine_->cholesky_qr(a, this->done_);
      EXPECT_FALSE(this->done_[0]) << side << " seed " << seed;
    }
  }
}

TYPED_TEST(Decompositions, CholeskyQrFailsOnAColumnOfZeros) {
  Batch<TypeParam> a(10, 4);
  a.randomise(1).fill([](TypeParam& x, int64_t, int64_t, int64_t j) {
    if (j == 2) x = 0;
  });
  this->engine_->cholesky_qr(a, this->done_);
  EXPECT_FALSE(this->done_[0]);
}

TYPED_TEST(Decompositions, CholeskyGivesTheLowerFactor) {
  for (int64_t n : {0, 1, 16, 33, 150}) {
    Batch<TypeParam> root(n, n, 1, 1);
    Batch<TypeParam> a(n, n, 1, 2);
    root.randomise(6);
    Plain product = times(plain(root), transposed(plain(root)));
    a.fill([&](TypeParam& x, int64_t, int64_t i, int64_t j) {
      x = static_cast<TypeParam>(product.at(i, j) + (i == j ? 1 : 0));
    });
    const Plain before = plain(a);
    this->engine_->cholesky(a, this->done_);
    ASSERT_TRUE(this->done_[0]) << n;
    const Plain l = plain(a);
    EXPECT_LE(distance(times(l, transposed(l)), before),
              this->allowed(n) * (norm(before) + 1));
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = i + 1; j < n; ++j) EXPECT_EQ(l.at(i, j), 0);
    EXPECT_TRUE(a.marks_untouched());
  }
}

TYPED_TEST(Decompositions, CholeskyTellsWhichMatrixIsNotPositive) {
  Batch<TypeParam> a(3, 3, 3);
  a.fill([](TypeParam& x, int64_t k, int64_t i, int64_t j) {
    x = i == j ? static_cast<TypeParam>(k == 1 ? -1 : 4) : TypeParam{0};
  });
  std::array<bool, 3> done = {};
  this->engine_->cholesky(a, done);
  EXPECT_THAT(done, testing::ElementsAre(true, false, true));
  EXPECT_EQ(a.at(2, 0, 0), 2);
}

TYPED_TEST(Decompositions, RefuseShapesTheyAreNotFor) {
  Batch<TypeParam> wide(2, 3);
  Batch<TypeParam> values(1, 3);
  EXPECT_THROW(this->engine_->qr(wide, this->done_), InternalError);
  EXPECT_THROW(this->engine_->cholesky_qr(wide, this->done_), InternalError);
  EXPECT_THROW(this->engine_->cholesky(wide, this->done_), InternalError);
  EXPECT_THROW(this->engine_->eigh(wide, values, this->done_), InternalError);
}

}  // namespace
}  // namespace canzona::linalg::cpu_decompositions_test
