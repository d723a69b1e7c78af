#include "canzona/linalg/cpu/reductions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "canzona/linalg/cpu/test_support.h"

namespace canzona::linalg::cpu_reductions_test {
namespace {

template <class Real>
ConstView<Real> const_view(const Batch<Real>& batch) {
  return view_of<Real>(static_cast<ConstMatrices>(batch));
}

template <class Real>
class Reductions : public testing::Test {
 protected:
  // A matrix of one value.
  static Batch<Real> filled(int64_t rows, int64_t cols, double value) {
    Batch<Real> a(rows, cols, 1, 1);
    a.fill([&](Real& x, int64_t, int64_t, int64_t) {
      x = static_cast<Real>(value);
    });
    return a;
  }
};
TYPED_TEST_SUITE(Reductions, RealTypes);

TYPED_TEST(Reductions, AddSquaresOfEveryElement) {
  for (int64_t count : {0, 1, 15, 16, 17, 1000}) {
    std::vector<TypeParam> x(static_cast<size_t>(count));
    double expected = 0;
    for (int64_t i = 0; i < count; ++i) {
      x[static_cast<size_t>(i)] = static_cast<TypeParam>(i % 7 - 3);
      expected += static_cast<double>((i % 7 - 3) * (i % 7 - 3));
    }
    EXPECT_EQ(sum_of_squares(x.data(), count), expected) << count;
  }
}

TYPED_TEST(Reductions, NormIsThatOfTheDefinition) {
  for (int64_t cols : {0, 1, 16, 37}) {
    Batch<TypeParam> a(23, cols, 1, 3);
    a.randomise(5);
    EXPECT_NEAR(frobenius_norm(const_view(a)), norm(plain(a)), 1e-12);
  }
}

TYPED_TEST(Reductions, NormSurvivesTheEndsOfTheRange) {
  using Limits = std::numeric_limits<TypeParam>;
  for (const double value : {static_cast<double>(Limits::max()) / 16,
                             static_cast<double>(Limits::min()),
                             static_cast<double>(Limits::denorm_min())}) {
    const auto a = this->filled(8, 8, value);
    EXPECT_NEAR(frobenius_norm(const_view(a)) / value, 8, 1e-12) << value;
  }
}

TYPED_TEST(Reductions, NormOfNothingIsZero) {
  EXPECT_EQ(frobenius_norm(const_view(this->filled(0, 3, 1))), 0);
  EXPECT_EQ(frobenius_norm(const_view(this->filled(5, 5, 0))), 0);
}

TYPED_TEST(Reductions, NotANumberAndInfinityAreNotLost) {
  for (const TypeParam bad : {std::numeric_limits<TypeParam>::quiet_NaN(),
                              std::numeric_limits<TypeParam>::infinity()}) {
    auto a = this->filled(9, 35, 1);
    a.at(0, 4, 20) = bad;
    const ConstView<TypeParam> view = const_view(a);
    EXPECT_FALSE(std::isfinite(frobenius_norm(view)));
    EXPECT_FALSE(std::isfinite(largest_magnitude_of(view)));
  }
}

TYPED_TEST(Reductions, LargestMagnitudeLooksAtEveryElement) {
  for (int64_t place : {0, 20, 34}) {
    auto a = this->filled(3, 35, 0.5);
    a.at(0, 1, place) = -2;
    EXPECT_EQ(largest_magnitude_of(const_view(a)), 2) << place;
  }
  EXPECT_EQ(largest_magnitude_of(const_view(this->filled(0, 4, 1))), 0);
}

TYPED_TEST(Reductions, TraceAddsTheDiagonal) {
  Batch<TypeParam> a(40, 40, 1, 1);
  a.randomise(9);
  double expected = 0;
  for (int64_t i = 0; i < 40; ++i) expected += a.at(0, i, i);
  EXPECT_NEAR(trace_of(const_view(a)), expected, 1e-13);
  EXPECT_EQ(trace_of(const_view(this->filled(0, 0, 1))), 0);
}

TEST(ReductionsFp64, TraceMayOverflowOnItsWay) {
  constexpr double kHuge = 1.5e308;
  Batch<double> a(3, 3);
  a.fill([](double& x, int64_t, int64_t, int64_t) { x = 0; });
  a.at(0, 0, 0) = kHuge;
  a.at(0, 1, 1) = kHuge;
  a.at(0, 2, 2) = -kHuge;
  EXPECT_DOUBLE_EQ(trace_of(const_view(a)), kHuge);
}

TYPED_TEST(Reductions, ColumnDotsAreThoseOfTheDefinition) {
  for (int64_t cols : {0, 1, 64, 65, 130}) {
    Batch<TypeParam> a(21, cols, 1, 1);
    Batch<TypeParam> b(21, cols, 1, 2);
    a.randomise(1);
    b.randomise(2);
    std::vector<TypeParam> dots(static_cast<size_t>(cols));
    dot_columns(dots.data(), const_view(a), const_view(b));
    for (int64_t j = 0; j < cols; ++j) {
      double expected = 0;
      for (int64_t i = 0; i < 21; ++i)
        expected += static_cast<double>(a.at(0, i, j)) *
                    static_cast<double>(b.at(0, i, j));
      EXPECT_NEAR(dots[static_cast<size_t>(j)], expected,
                  21 * tolerance<TypeParam>());
    }
  }
}

}  // namespace
}  // namespace canzona::linalg::cpu_reductions_test
