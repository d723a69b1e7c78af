#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/linalg/cpu/test_support.h"
#include "canzona/linalg/engine.h"

namespace canzona::linalg::cpu_dense_test {
namespace {

template <class Real>
class Dense : public testing::Test {
 protected:
  std::unique_ptr<Engine> engine_ = make_cpu_engine();
};
TYPED_TEST_SUITE(Dense, RealTypes);

Plain with_op(const Plain& a, Op op) {
  return op == Op::kNone ? a : transposed(a);
}

// Commuting symmetric matrices: A is random, B = A² + A.
template <class Real>
void make_commuting(Batch<Real>& a, Batch<Real>& b) {
  a.randomise(17).symmetrise();
  const Plain square = times(plain(a), plain(a));
  b.fill([&](Real& x, int64_t, int64_t i, int64_t j) {
    x = static_cast<Real>(square.at(i, j) + a.at(0, i, j));
  });
  b.symmetrise();
}

TYPED_TEST(Dense, ProductIsThatOfTheDefinition) {
  constexpr int64_t kShapes[][3] = {{0, 3, 2}, {3, 0, 2},    {3, 2, 0},
                                    {1, 1, 1}, {17, 33, 9},  {16, 64, 32},
                                    {5, 1, 7}, {129, 40, 65}};
  for (const auto& [m, n, k] : kShapes) {
    for (Op op_a : {Op::kNone, Op::kTranspose}) {
      for (Op op_b : {Op::kNone, Op::kTranspose}) {
        const bool plain_a = op_a == Op::kNone;
        const bool plain_b = op_b == Op::kNone;
        Batch<TypeParam> a(plain_a ? m : k, plain_a ? k : m, 1, 1);
        Batch<TypeParam> b(plain_b ? k : n, plain_b ? n : k, 1, 2);
        Batch<TypeParam> c(m, n, 1, 3);
        a.randomise(1);
        b.randomise(2);
        c.randomise(3);
        const Plain expected =
            sum(0.5, times(with_op(plain(a), op_a), with_op(plain(b), op_b)),
                -2, plain(c));
        this->engine_->product(c, 0.5, a, op_a, b, op_b, -2);
        EXPECT_LE(distance(plain(c), expected),
                  tolerance<TypeParam>() * (norm(expected) + norm(plain(a))))
            << m << "x" << n << "x" << k;
        EXPECT_TRUE(c.marks_untouched());
      }
    }
  }
}

TYPED_TEST(Dense, BetaZeroIgnoresWhatWasThere) {
  for (int64_t side : {1, 5, 130}) {
    Batch<TypeParam> a(side, side);
    Batch<TypeParam> c(side, side);
    a.randomise(1);
    c.fill([](TypeParam& x, int64_t, int64_t, int64_t) {
      x = std::numeric_limits<TypeParam>::quiet_NaN();
    });
    Batch<TypeParam> d = c;
    this->engine_->product(c, 1, a, Op::kNone, a, Op::kNone, 0);
    EXPECT_TRUE(std::isfinite(norm(plain(c)))) << side;
    this->engine_->symmetric_product(d, 1, a, Op::kNone, 0);
    EXPECT_TRUE(std::isfinite(norm(plain(d)))) << side;
  }
}

TYPED_TEST(Dense, SymmetricProductIsThatOfTheDefinitionAndSymmetric) {
  constexpr int64_t kShapes[][2] = {{0, 3},   {3, 0},   {1, 1},
                                    {16, 40}, {33, 17}, {130, 70}};
  for (const auto& [n, k] : kShapes) {
    for (Op op : {Op::kNone, Op::kTranspose}) {
      const bool as_is = op == Op::kNone;
      Batch<TypeParam> a(as_is ? n : k, as_is ? k : n, 1, 1);
      Batch<TypeParam> c(n, n, 1, 3);
      a.randomise(1);
      c.randomise(2).symmetrise();
      const Plain left = with_op(plain(a), op);
      const Plain expected =
          sum(1.5, times(left, transposed(left)), 0.25, plain(c));
      this->engine_->symmetric_product(c, 1.5, a, op, 0.25);
      EXPECT_LE(distance(plain(c), expected),
                tolerance<TypeParam>() * (norm(expected) + 1))
          << n << "x" << k;
      EXPECT_TRUE(exactly_symmetric(plain(c))) << n << "x" << k;
      EXPECT_TRUE(c.marks_untouched());
    }
  }
}

TYPED_TEST(Dense, CommutingProductIsThatOfTheDefinitionAndSymmetric) {
  for (int64_t side : {0, 1, 15, 96, 97, 200, 257}) {
    Batch<TypeParam> a(side, side, 1, 1);
    Batch<TypeParam> b(side, side, 1, 2);
    Batch<TypeParam> c(side, side, 1, 3);
    make_commuting(a, b);
    this->engine_->commuting_product(c, a, b);
    EXPECT_LE(distance(plain(c), times(plain(a), plain(b))),
              tolerance<TypeParam>() * norm(plain(a)) * (norm(plain(b)) + 1))
        << side;
    EXPECT_TRUE(exactly_symmetric(plain(c))) << side;
    EXPECT_TRUE(c.marks_untouched());
  }
}

TYPED_TEST(Dense, SolvingUndoesAProduct) {
  constexpr int64_t kShapes[][2] = {{0, 4}, {4, 0}, {1, 1}, {40, 17}, {7, 100}};
  for (const auto& [rows, side] : kShapes) {
    Batch<TypeParam> l(side, side, 1, 2);
    Batch<TypeParam> x(rows, side, 1, 1);
    Batch<TypeParam> b(rows, side, 1, 4);
    x.randomise(1);
    l.randomise(2).fill([](TypeParam& e, int64_t, int64_t i, int64_t j) {
      e = i == j ? TypeParam{2} : i > j ? e / 8 : TypeParam{0};
    });
    const Plain product = times(plain(x), transposed(plain(l)));
    b.fill([&](TypeParam& e, int64_t, int64_t i, int64_t j) {
      e = static_cast<TypeParam>(product.at(i, j));
    });
    this->engine_->solve_right_transposed(b, l);
    EXPECT_LE(distance(plain(b), plain(x)),
              10 * tolerance<TypeParam>() * (norm(plain(x)) + 1))
        << rows << "x" << side;
    EXPECT_TRUE(b.marks_untouched());
  }
}

TYPED_TEST(Dense, SidesThatDoNotFitAreRefused) {
  Batch<TypeParam> a(3, 4);
  Batch<TypeParam> c(3, 3);
  EXPECT_THROW(this->engine_->product(c, 1, a, Op::kNone, a, Op::kNone, 0),
               InternalError);
  EXPECT_THROW(this->engine_->symmetric_product(c, 1, a, Op::kTranspose, 0),
               InternalError);
  Batch<TypeParam> two(3, 3, 2);
  EXPECT_THROW(this->engine_->commuting_product(two, c, c), InternalError);
}

TEST(DenseBf16, IsNoTypeOfPlainProducts) {
  Batch<float> a(2, 2);
  Matrices b = a;
  b.dtype = DType::kBf16;
  EXPECT_THROW(make_cpu_engine()->copy(b, b), InternalError);
}

}  // namespace
}  // namespace canzona::linalg::cpu_dense_test
