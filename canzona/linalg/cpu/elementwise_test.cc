#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/linalg/cpu/test_support.h"
#include "canzona/linalg/engine.h"

namespace canzona::linalg::cpu_elementwise_test {
namespace {

template <class Real>
class Elementwise : public testing::Test {
 protected:
  static constexpr int64_t kRows = 7;
  static constexpr int64_t kCols = 19;
  static constexpr int64_t kCount = 2;

  // Calls expected(matrix, row, col) for each element of `a`.
  template <class Expected>
  static void expect_elements(const Batch<Real>& a, const Expected& expected) {
    for (int64_t k = 0; k < a.count(); ++k)
      for (int64_t i = 0; i < a.rows(); ++i)
        for (int64_t j = 0; j < a.cols(); ++j)
          EXPECT_EQ(a.at(k, i, j), expected(k, i, j))
              << k << ": " << i << "," << j;
    EXPECT_TRUE(a.marks_untouched());
  }

  Elementwise() : x_(kRows, kCols, kCount, 2), y_(kRows, kCols, kCount, 5) {
    x_.randomise(1);
    y_.randomise(2);
  }

  std::unique_ptr<Engine> engine_ = make_cpu_engine();
  Batch<Real> x_;
  Batch<Real> y_;
};
TYPED_TEST_SUITE(Elementwise, RealTypes);

TYPED_TEST(Elementwise, CopyCopies) {
  this->engine_->copy(this->y_, this->x_);
  this->expect_elements(this->y_, [&](int64_t k, int64_t i, int64_t j) {
    return this->x_.at(k, i, j);
  });
}

TYPED_TEST(Elementwise, SetIdentityLeavesNothingElse) {
  this->engine_->set_identity(this->y_, 2.5);
  this->expect_elements(this->y_, [](int64_t, int64_t i, int64_t j) {
    return i == j ? TypeParam{2.5} : TypeParam{0};
  });
}

TYPED_TEST(Elementwise, AddDiagonalTouchesNothingElse) {
  const std::vector<Plain> before = {plain(this->y_, 0), plain(this->y_, 1)};
  this->engine_->add_diagonal(this->y_, 0.75);
  this->expect_elements(this->y_, [&](int64_t k, int64_t i, int64_t j) {
    const auto was =
        static_cast<TypeParam>(before[static_cast<size_t>(k)].at(i, j));
    return i == j ? was + TypeParam{0.75} : was;
  });
}

TYPED_TEST(Elementwise, AxpbyRoundsEveryOperation) {
  const std::vector<Plain> before = {plain(this->y_, 0), plain(this->y_, 1)};
  this->engine_->axpby(this->y_, 0.1, this->x_, 0.7);
  this->expect_elements(this->y_, [&](int64_t k, int64_t i, int64_t j) {
    const volatile TypeParam left =
        static_cast<TypeParam>(0.1) * this->x_.at(k, i, j);
    const volatile TypeParam right =
        static_cast<TypeParam>(0.7) *
        static_cast<TypeParam>(before[static_cast<size_t>(k)].at(i, j));
    return static_cast<TypeParam>(left + right);
  });
}

TYPED_TEST(Elementwise, AxpbyWithoutBetaIgnoresWhatWasThere) {
  this->y_.at(1, 2, 3) = std::numeric_limits<TypeParam>::quiet_NaN();
  this->engine_->axpby(this->y_, 2, this->x_, 0);
  this->expect_elements(this->y_, [&](int64_t k, int64_t i, int64_t j) {
    return 2 * this->x_.at(k, i, j);
  });
}

std::vector<int64_t> backwards(int64_t size) {
  std::vector<int64_t> order;
  for (int64_t i = size; i > 0; --i) order.push_back(i - 1);
  return order;
}

TYPED_TEST(Elementwise, PermutesColumnsAndRows) {
  const int64_t rows = this->kRows;
  const int64_t cols = this->kCols;
  this->engine_->permute_columns(this->y_, this->x_, backwards(cols));
  this->expect_elements(this->y_, [&](int64_t k, int64_t i, int64_t j) {
    return this->x_.at(k, i, cols - 1 - j);
  });
  this->engine_->permute_rows(this->y_, this->x_, backwards(rows));
  this->expect_elements(this->y_, [&](int64_t k, int64_t i, int64_t j) {
    return this->x_.at(k, rows - 1 - i, j);
  });
}

TYPED_TEST(Elementwise, RefusesAnOrderThatLeavesTheMatrix) {
  std::vector<int64_t> order = backwards(this->kCols);
  order[3] = this->kCols;
  EXPECT_THROW(this->engine_->permute_columns(this->y_, this->x_, order),
               InternalError);
  EXPECT_THROW(this->engine_->permute_rows(this->y_, this->x_, order),
               InternalError);
}

TYPED_TEST(Elementwise, ScalesColumnsOfEachMatrixByItsOwnFactors) {
  Batch<TypeParam> factors(1, this->kCols, this->kCount);
  factors.randomise(3);
  this->engine_->scale_columns(this->y_, this->x_, factors);
  this->expect_elements(this->y_, [&](int64_t k, int64_t i, int64_t j) {
    return this->x_.at(k, i, j) * factors.at(k, 0, j);
  });
}

TYPED_TEST(Elementwise, ScalesToTheNormOfTheReference) {
  this->engine_->axpby(this->x_, 1e-30, this->x_, 0);
  this->engine_->scale_to_norm(this->x_, this->y_, 0);
  for (int64_t k = 0; k < this->kCount; ++k)
    EXPECT_NEAR(norm(plain(this->x_, k)) / norm(plain(this->y_, k)), 1,
                tolerance<TypeParam>());
  EXPECT_TRUE(this->x_.marks_untouched());
}

TYPED_TEST(Elementwise, ScalingKeepsZeroAndUsesEpsilon) {
  Batch<TypeParam> one(1, 1);
  Batch<TypeParam> reference(1, 1);
  reference.at(0, 0, 0) = 6;
  one.at(0, 0, 0) = 0;
  this->engine_->scale_to_norm(one, reference, 0);
  EXPECT_EQ(one.at(0, 0, 0), 0);
  one.at(0, 0, 0) = 2;
  this->engine_->scale_to_norm(one, reference, 1);
  EXPECT_EQ(one.at(0, 0, 0), 4);
}

TYPED_TEST(Elementwise, ScalesToTheNormOfAReferenceOfAnotherShape) {
  Batch<TypeParam> reference(1, 1, this->kCount);
  for (int64_t k = 0; k < this->kCount; ++k)
    reference.at(k, 0, 0) = static_cast<TypeParam>(k + 1);
  this->engine_->scale_to_norm(this->x_, reference, 0);
  for (int64_t k = 0; k < this->kCount; ++k)
    EXPECT_NEAR(norm(plain(this->x_, k)) / static_cast<double>(k + 1), 1,
                tolerance<TypeParam>());
}

TYPED_TEST(Elementwise, LimitsNormsThatAreAboveTheBoundAlone) {
  Batch<TypeParam> two(1, 2, 2);
  two.at(0, 0, 0) = 3;
  two.at(0, 0, 1) = -4;
  two.at(1, 0, 0) = static_cast<TypeParam>(0.3);
  two.at(1, 0, 1) = static_cast<TypeParam>(0.4);
  this->engine_->limit_norms(two, 3, 1);
  EXPECT_EQ(two.at(0, 0, 0), static_cast<TypeParam>(1.5));
  EXPECT_EQ(two.at(0, 0, 1), -2);
  EXPECT_EQ(two.at(1, 0, 0), static_cast<TypeParam>(0.3));
  EXPECT_EQ(two.at(1, 0, 1), static_cast<TypeParam>(0.4));
}

// Sides of one tile or less, of whole tiles, and of one more.
constexpr int64_t kTriangleSides[] = {0, 1, 7, 64, 65};

// A square whose upper part, which triangles do not have, is not a number.
template <class Real>
Batch<Real> lower_part(int64_t side) {
  Batch<Real> square(side, side, 1, 3);
  return square.randomise(4).fill([](Real& x, int64_t, int64_t i, int64_t j) {
    if (i < j) x = std::numeric_limits<Real>::quiet_NaN();
  });
}

// Both the engine's own triangles and those of any engine.
template <class Real>
class Triangles : public testing::Test {
 protected:
  std::vector<Real> taken(const Batch<Real>& square, bool own) {
    const int64_t side = square.rows();
    std::vector<Real> triangle(static_cast<size_t>(side * (side + 1) / 2 + 1),
                               kBehind);
    if (own)
      engine_->take_triangle(run_of(triangle.data()), square);
    else
      engine_->Engine::take_triangle(run_of(triangle.data()), square);
    return triangle;
  }
  void put(Batch<Real>& square, const std::vector<Real>& triangle, bool own) {
    const ConstRun from = run_of(triangle.data());
    if (own)
      engine_->put_triangle(square, from);
    else
      engine_->Engine::put_triangle(square, from);
  }

  static constexpr Real kBehind = Real{-777};
  std::unique_ptr<Engine> engine_ = make_cpu_engine();
};
TYPED_TEST_SUITE(Triangles, RealTypes);

TYPED_TEST(Triangles, AreTakenRowByRowWithoutTheUpperPart) {
  for (const int64_t side : kTriangleSides)
    for (const bool own : {true, false}) {
      SCOPED_TRACE(side);
      const Batch<TypeParam> square = lower_part<TypeParam>(side);
      const std::vector<TypeParam> before = square.storage();
      const std::vector<TypeParam> triangle = this->taken(square, own);
      size_t next = 0;
      for (int64_t i = 0; i < side; ++i)
        for (int64_t j = 0; j <= i; ++j)
          EXPECT_EQ(triangle[next++], square.at(0, i, j)) << i << "," << j;
      EXPECT_EQ(triangle[next], this->kBehind);
      EXPECT_TRUE(same_bits(square.storage(), before));
    }
}

TYPED_TEST(Triangles, ComeBackAsSymmetricSquares) {
  for (const int64_t side : kTriangleSides)
    for (const bool own : {true, false}) {
      SCOPED_TRACE(side);
      const Batch<TypeParam> lower = lower_part<TypeParam>(side);
      const std::vector<TypeParam> triangle = this->taken(lower, own);
      Batch<TypeParam> square = lower_part<TypeParam>(side);
      this->put(square, triangle, own);
      for (int64_t i = 0; i < side; ++i)
        for (int64_t j = 0; j < side; ++j)
          EXPECT_EQ(square.at(0, i, j),
                    lower.at(0, std::max(i, j), std::min(i, j)))
              << i << "," << j;
      EXPECT_TRUE(square.marks_untouched());
      EXPECT_TRUE(same_bits(this->taken(square, own), triangle));
    }
}

// Rows of a wider matrix; ties are rounded to even.
TEST(ElementwiseBf16, ConvertsBothWaysWithinRows) {
  const auto engine = make_cpu_engine();
  const std::vector<float> values = {1,  -2, 0.5F, 1.00390625F, 1.01171875F,
                                     99, 3,  -4,   1e-40F,      7};
  std::vector<uint16_t> narrow(8, 0xDEAD);
  ConstMatrices from = matrices(values.data(), 2, 3);
  from.row_stride = 5;
  Matrices to{reinterpret_cast<std::byte*>(narrow.data()),
              DType::kBf16,
              2,
              3,
              4,
              1,
              8,
              nullptr};
  engine->convert(to, from);
  EXPECT_EQ(narrow, (std::vector<uint16_t>{0x3F80, 0xC000, 0x3F00, 0xDEAD,
                                           0x42C6, 0x4040, 0xC080, 0xDEAD}));
  std::vector<float> back(6, 0);
  engine->convert(matrices(back.data(), 2, 3), to);
  EXPECT_EQ(back, (std::vector<float>{1, -2, 0.5F, 99, 3, -4}));
  const std::vector<uint16_t> halves = {0x3F80, 0x3F81};
  float wide[2] = {};
  const Engine::Widened runs[] = {{wide + 1, halves.data(), 1},
                                  {wide, halves.data() + 1, 1}};
  engine->widen(runs);
  EXPECT_EQ(wide[0], 1.0078125F);
  EXPECT_EQ(wide[1], 1.0F);
}

TEST(ElementwiseBf16, LooksAtNarrowRunsAndScalesThem) {
  const auto engine = make_cpu_engine();
  std::vector<uint16_t> narrow(5000, 0x3F80);  // ones
  narrow[4999] = 0xC040;                       // -3
  const Engine::Stretch run{
      {reinterpret_cast<const std::byte*>(narrow.data()), DType::kBf16}, 5000};
  EXPECT_EQ(engine->largest_bits({&run, 1}), 0x40400000U);
  EXPECT_EQ(engine->sum_of_squares({&run, 1}, 0), (WideSum{4999 + 9, 0}));
  int32_t first = -1;
  engine->find_nonfinite(&first, {&run, 1});
  EXPECT_EQ(first, 0);
  const double half = 0.5;
  engine->scale_by({reinterpret_cast<std::byte*>(narrow.data()), DType::kBf16},
                   &half, 5000);
  EXPECT_EQ(narrow[0], 0x3F00);
  EXPECT_EQ(narrow[4999], 0xBFC0);
  narrow[4000] = 0x7F80;
  engine->find_nonfinite(&first, {&run, 1});
  EXPECT_EQ(first, 1);
}

TEST(SharedNumbers, SkipWhatIsNotFiniteOrUnlike) {
  const auto engine = make_cpu_engine();
  GradientNumbers numbers;
  const auto judge = [&](int64_t largest, int64_t a, int64_t b, int64_t least) {
    const int64_t shared[] = {largest, a, b};
    engine->judge_shared(&numbers, shared, least);
    return numbers.skip;
  };
  EXPECT_EQ(judge(5, 7, -7, kInfinityBits), 0);
  EXPECT_EQ(numbers.largest, 5);
  EXPECT_EQ(judge(kInfinityBits, 7, -7, kInfinityBits), 1);
  EXPECT_EQ(judge(kInfinityBits, 7, -7, kUnlikeCode), 0);
  EXPECT_EQ(judge(5, 7, -6, kUnlikeCode), 1);
  EXPECT_EQ(numbers.largest, kUnlikeCode);
}

// As ranks add limbs: two sums whose lower words carry twice.
TEST(SharedNumbers, AddSquaresLimbByLimb) {
  const auto engine = make_cpu_engine();
  GradientNumbers a, b;
  a.squares[0] = 0xFFFFFFFFFFFFFFFF;
  a.squares[1] = 0x1FFFFFFFF;
  b.squares[0] = 0x00000000FFFFFFFF;
  b.squares[1] = 5;
  int64_t limbs[4], more[4];
  engine->split_squares(limbs, &a);
  engine->split_squares(more, &b);
  for (int i = 0; i < 4; ++i) limbs[i] += more[i];
  engine->join_squares(&a, limbs);
  EXPECT_EQ(a.squares[0], 0x00000000FFFFFFFEU);
  EXPECT_EQ(a.squares[1], 0x200000005U);
}

}  // namespace
}  // namespace canzona::linalg::cpu_elementwise_test
