// Norms and factors of lines, against numbers worked out by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "canzona/linalg/cpu/test_support.h"
#include "canzona/linalg/engine.h"

namespace canzona::linalg::lines_test {
namespace {

using Kind = LineFactors::Kind;

template <class Real>
class LinesOf : public testing::Test {
 protected:
  using Numbers = Batch<Real>;

  // Rows of norms 5 and 0; columns of norms 3, 0 and 4.
  LinesOf() : a_(2, 3, 1, 1) {
    a_.fill([](Real& x, int64_t, int64_t, int64_t) { x = 0; });
    a_.at(0, 0, 0) = 3;
    a_.at(0, 0, 2) = -4;
  }

  Numbers row(std::initializer_list<double> values) {
    Numbers numbers(1, static_cast<int64_t>(values.size()));
    int64_t j = 0;
    for (const double value : values)
      numbers.at(0, 0, j++) = static_cast<Real>(value);
    return numbers;
  }
  void expect(const Numbers& got, std::initializer_list<double> wanted) {
    int64_t j = 0;
    for (const double value : wanted) {
      const double found = got.at(0, 0, j++);
      EXPECT_NEAR(found, value, tolerance<Real>() * (1 + value)) << j - 1;
    }
  }

  std::unique_ptr<Engine> engine_ = make_cpu_engine();
  Numbers a_;
};

TYPED_TEST_SUITE(LinesOf, RealTypes);

TYPED_TEST(LinesOf, HaveNorms) {
  auto norms = this->row({9, 9});
  this->engine_->line_norms(norms, this->a_, Lines::kRows);
  this->expect(norms, {5, 0});
  auto columns = this->row({9, 9, 9});
  this->engine_->line_norms(columns, this->a_, Lines::kColumns);
  this->expect(columns, {3, 0, 4});
}

TYPED_TEST(LinesOf, AreScaledByRow) {
  auto factors = this->row({2, 7});
  this->engine_->scale_rows(this->a_, this->a_, factors);
  EXPECT_EQ(this->a_.at(0, 0, 0), 6);
  EXPECT_EQ(this->a_.at(0, 0, 2), -8);
  EXPECT_TRUE(this->a_.marks_untouched());
}

// |A| = 10; each of four lines is to have 5.
TYPED_TEST(LinesOf, BecomeEven) {
  auto f = this->row({0, 0, 0, 0});
  const auto norms = this->row({8, 6, 0, 0});
  this->engine_->line_factors(f, norms, {.kind = Kind::kEven, .floor = 7});
  this->expect(f, {5. / 8, 5. / 7, 5. / 7, 5. / 7});
}

TYPED_TEST(LinesOf, GetALengthTogether) {
  auto f = this->row({0, 0});
  const auto norms = this->row({3, 4});
  this->engine_->line_factors(f, norms, {.target = 10});
  this->expect(f, {2, 2});
  this->engine_->line_factors(f, norms, {.first = false, .target = 5});
  this->expect(f, {1, 1});
  this->engine_->line_factors(f, norms, {}, {}, this->row({0, 10, 0}));
  this->expect(f, {2, 2});
  this->engine_->line_factors(f, norms, {.target = 10, .floor = 20});
  this->expect(f, {0.5, 0.5});
  this->engine_->line_factors(f, norms,
                              {.target = 10, .floor = 20, .zero_below = true});
  this->expect(f, {0, 0});
  this->engine_->line_factors(f, this->row({0, 0}), {.target = 10});
  this->expect(f, {0, 0});
}

// V = 0.5·{4, 0} + 0.5·{16, 36}/2 = {6, 9}; the quotients have the squares
// 16/6 and 36/9, and |A| = sqrt(52).
TYPED_TEST(LinesOf, AreDividedByTheirMoments) {
  auto f = this->row({0, 0});
  auto v = this->row({4, 0});
  LineFactors how{.kind = Kind::kMoments, .keep = 0.5, .add = 0.5, .length = 2};
  this->engine_->line_factors(f, this->row({4, 6}), how, v);
  this->expect(v, {6, 9});
  const double rest = std::sqrt(52 / (16. / 6 + 4));
  this->expect(f, {rest / std::sqrt(6), rest / 3});
  how = {.kind = Kind::kMoments, .keep = 1, .add = 0, .epsilon = 9, .clamp = 1};
  this->engine_->line_factors(f, this->row({4, 6}), how, v);
  this->expect(f, {1, 1});
  how = {.kind = Kind::kMoments, .keep = 0, .add = 1};
  this->engine_->line_factors(f, this->row({0, 6}), how, v);
  this->expect(v, {0, 36});
  this->expect(f, {0, 1});
}

// V = 0.75·4 + 0.25·(36 + 64) = 28, |norms| = 5.
TYPED_TEST(LinesOf, AreDividedByOneMoment) {
  auto f = this->row({2, 3});
  auto v = this->row({4});
  this->engine_->line_factors(f, this->row({3, 4}),
                              {.kind = Kind::kMoment,
                               .first = false,
                               .keep = 0.75,
                               .add = 0.25,
                               .epsilon = 1},
                              v, this->row({6, 8}));
  this->expect(v, {28});
  const double each = 5 / (std::sqrt(28) + 1);
  this->expect(f, {2 * each, 3 * each});
}

TYPED_TEST(LinesOf, HaveAMomentThatStaysFinite) {
  const double most =
      static_cast<double>(std::numeric_limits<TypeParam>::max());
  auto f = this->row({0, 0});
  auto v = this->row({0});
  const LineFactors how{.kind = Kind::kMoment, .keep = 0.5, .add = 1};
  for (const double size : {most / 4, 0.0})
    this->engine_->line_factors(f, this->row({3, 4}), how, v,
                                this->row({size, 0}));
  this->expect(v, {most / 2});
  this->expect(f, {5 / std::sqrt(most / 2), 5 / std::sqrt(most / 2)});
}

// Rows {3, 0, -4} and {0, 0, 0} beside {1, 2, 2} and {0, 5, 0}.
TYPED_TEST(LinesOf, HaveNormsAndProductsTogether) {
  typename TestFixture::Numbers p(2, 3, 1, 1);
  p.fill([](auto& x, int64_t, int64_t, int64_t) { x = 0; });
  p.at(0, 0, 0) = 1;
  p.at(0, 0, 1) = p.at(0, 0, 2) = 2;
  p.at(0, 1, 1) = 5;
  auto o_norms = this->row({9, 9}), p_norms = this->row({9, 9});
  auto dots = this->row({9, 9});
  this->engine_->row_sums({o_norms, p_norms, dots}, this->a_, p);
  this->expect(o_norms, {5, 0});
  this->expect(p_norms, {3, 5});
  EXPECT_EQ(dots.at(0, 0, 0), -5);
  EXPECT_EQ(dots.at(0, 0, 1), 0);
}

// Rows p = {1, 2, 2}, o = {3, 0, -4}, f = 2: p·0.5 - 0.5·f·o has the squares
// 6.25 + 1 + 25, times 4 for keep_after.
TYPED_TEST(LinesOf, GetTheLengthOfMovedRows) {
  auto g = this->row({9});
  auto o_norms = this->row({5}), p_norms = this->row({3});
  auto dots = this->row({-5});
  const Apply apply{.keep_before = 0.5, .step = 0.5, .keep_after = 2};
  const auto check = [&](double target, double floor, double expected) {
    this->engine_->moved_factors(g, {o_norms, p_norms, dots}, this->row({2}),
                                 apply, target, floor);
    this->expect(g, {expected});
  };
  const double moved = 2 * std::sqrt(32.25);
  check(7, 0, 7 / moved);
  check(0, 0, 3 / moved);
  check(7, moved / 2, 7 / moved);
  check(7, moved * 2, 0);
}

TYPED_TEST(LinesOf, MoveWeightsLikeTheStagesDo) {
  for (const Lines lines : {Lines::kRows, Lines::kColumns})
    for (const bool pulls : {false, true}) {
      typename TestFixture::Numbers p(2, 3, 2), o(2, 3, 2), u(2, 3, 2);
      p.randomise(1);
      o.randomise(2);
      typename TestFixture::Numbers f(1, lines == Lines::kRows ? 2 : 3, 2);
      typename TestFixture::Numbers g(1, 2, 2);
      f.randomise(3);
      g.randomise(4);
      const Apply apply{.keep_before = 0.75, .step = 0.5};
      auto expected = p;
      for (int64_t k = 0; k < 2; ++k)
        for (int64_t i = 0; i < 2; ++i)
          for (int64_t j = 0; j < 3; ++j) {
            const double before = p.at(k, i, j);
            const double by = f.at(k, 0, lines == Lines::kRows ? i : j);
            double moved = 0.75 * before - 0.5 * by * o.at(k, i, j);
            if (pulls) moved *= g.at(k, 0, i);
            expected.at(k, i, j) = static_cast<TypeParam>(moved);
          }
      LineUpdate how{.update = o, .factors = f, .lines = lines, .apply = apply};
      if (pulls) how.lengths = g;
      this->engine_->apply_lines(p, how);
      for (int64_t k = 0; k < 2; ++k)
        for (int64_t i = 0; i < 2; ++i)
          for (int64_t j = 0; j < 3; ++j)
            EXPECT_NEAR(p.at(k, i, j), expected.at(k, i, j),
                        8 * tolerance<TypeParam>())
                << (lines == Lines::kRows ? "rows " : "columns ") << pulls;
    }
}

}  // namespace
}  // namespace canzona::linalg::lines_test
