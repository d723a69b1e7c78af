// Tests of loading: momentum, rounding, packing, the norm.
#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include "canzona/linalg/cpu/bf16/test_bf16.h"

namespace canzona::linalg::load_test {
namespace {

constexpr Blend kNesterov{
    .keep = 0.95, .add = 0.05, .from_grad = 0.05, .from_momentum = 0.95};

using LoadTest = Bf16Test;

// Returns the nearest number with 8 significant bits to `value`, the even one
// in a tie.
double nearest_bf16(double value) {
  if (value == 0) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const double unit = std::ldexp(1.0, exponent - 8);
  return std::nearbyint(value / unit) * unit;
}

TEST_P(LoadTest, RoundsToTheNearestAndToEven) {
  for (int64_t m : sizes())
    for (int64_t n : sizes()) {
      Arena::Scope scope(arena_);
      PlainRows source = gaussian(m, n, 3, 2);
      if (m > 0 && n > 1) {
        source(0, 0) = 1.0F + 1.0F / 256;
        source(0, 1) = 1.0F + 3.0F / 256;
      }
      const Dense got = stored_wide(load(source));
      for (int64_t i = 0; i < got.rows; ++i)
        for (int64_t j = 0; j < got.cols; ++j)
          ASSERT_EQ(got(i, j),
                    nearest_bf16(m > n ? source(j, i) : source(i, j)));
    }
}

TEST_P(LoadTest, D6TinyNumbersBecomeZero) {
  const float least = std::numeric_limits<float>::min();
  PlainRows source = make_plain(1, 4, 0, [&](int64_t, int64_t j) {
    return j == 0 ? least : j == 1 ? least * 0.999F : -least / 2;
  });
  EXPECT_THAT(stored_wide(load(source)).values,
              testing::ElementsAre(least, 0, 0, 0));
}

TEST_P(LoadTest, ReturnsTheSumOfSquaresAsStored) {
  for (int64_t m : sizes())
    for (int64_t n : sizes()) {
      Arena::Scope scope(arena_);
      PlainRows source = gaussian(m, n, 3, 2);
      const bool tall = m > n;
      Operand x = algebra_->wide(arena_, std::min(m, n), std::max(m, n));
      const double loaded =
          algebra_->load(x, {.source = source.view(), .transpose = tall});
      ASSERT_NEAR(loaded, frobenius(stored_wide(x)), 1e-13 * loaded);
    }
}

TEST_P(LoadTest, SumsHaveTheSameBitsInAllKernels) {
  const auto portable = make_bf16_algebra(Bf16Kernel::kPortable);
  PlainRows source = gaussian(75, 333, 9);
  Operand x = algebra_->wide(arena_, 75, 333);
  EXPECT_EQ(algebra_->load(x, {.source = source.view()}),
            portable->load(x, {.source = source.view()}));
}

TEST_P(LoadTest, TransposingFirstGivesTheSameBits) {
  for (auto [m, n] :
       {std::pair<int64_t, int64_t>{1, 40}, {33, 100}, {96, 160}}) {
    PlainRows wide = gaussian(m, n, 5);
    PlainRows tall = transposed(wide, 7);
    Operand x = algebra_->wide(arena_, m, n), y = algebra_->wide(arena_, m, n);
    const double wide_sum = algebra_->load(x, {.source = wide.view()});
    const double tall_sum =
        algebra_->load(y, {.source = tall.view(), .transpose = true});
    EXPECT_EQ(wide_sum, tall_sum);
    EXPECT_EQ(StoredBlocks(x, 3).words(), StoredBlocks(y, 3).words());
  }
}

TEST_P(LoadTest, MomentumOnTheWayHasTheBitsOfMomentumBefore) {
  for (auto [m, n] :
       {std::pair<int64_t, int64_t>{1, 1}, {33, 100}, {130, 70}}) {
    const bool tall = m > n;
    PlainRows gradient = gaussian(m, n, 5, 3);
    PlainRows momentum = gaussian(m, n, 6, 4);
    PlainRows want = momentum, blend = gradient;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const float kept = 0.95F * momentum(i, j);
        const float added = 0.05F * gradient(i, j);
        want(i, j) = kept + added;
        const float direct = 0.05F * gradient(i, j);
        const float lasting = 0.95F * want(i, j);
        blend(i, j) = direct + lasting;
      }
    Operand x = algebra_->wide(arena_, std::min(m, n), std::max(m, n));
    Operand y = algebra_->wide(arena_, std::min(m, n), std::max(m, n));
    const double at_once = algebra_->load(x, {.source = gradient.view(),
                                              .momentum = momentum.view(),
                                              .blend = kNesterov,
                                              .transpose = tall});
    const double later =
        algebra_->load(y, {.source = blend.view(), .transpose = tall});
    EXPECT_EQ(at_once, later);
    EXPECT_EQ(bits_of(momentum), bits_of(want));
    EXPECT_EQ(StoredBlocks(x, 3).words(), StoredBlocks(y, 3).words());
  }
}

TEST_P(LoadTest, PrescaleComesBeforeRounding) {
  PlainRows source = make_plain(2, 3, 0, [](int64_t i, int64_t j) {
    return std::ldexp(1.0 + static_cast<double>(i + j), -130);
  });
  Operand x = algebra_->wide(arena_, 2, 3);
  const double norm = algebra_->load(
      x, {.source = source.view(), .prescale = std::ldexp(1.0, 100)});
  EXPECT_THAT(affine(std::ldexp(1.0, 30), stored_wide(x), 0).values,
              testing::ElementsAre(1, 2, 3, 2, 3, 4));
  EXPECT_EQ(norm, std::sqrt(std::ldexp(43.0, -60)));
}

TEST_P(LoadTest, NotFiniteIfAValueIsNot) {
  for (float bad : {std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity(),
                    std::numeric_limits<float>::quiet_NaN()})
    for (auto [i, j] : {std::pair<int64_t, int64_t>{0, 0}, {39, 69}, {5, 33}}) {
      PlainRows source = gaussian(40, 70, 1);
      source(i, j) = bad;
      Operand x = algebra_->wide(arena_, 40, 70);
      EXPECT_FALSE(std::isfinite(algebra_->load(x, {.source = source.view()})));
    }
}

TEST_P(LoadTest, LoadingTwiceGivesTheSameBits) {
  PlainRows source = gaussian(50, 90, 1);
  Operand x = algebra_->wide(arena_, 50, 90);
  x.scale = 3;
  x.identity = 2;
  const double first = algebra_->load(x, {.source = source.view()});
  const StoredBlocks before(x, 3);
  EXPECT_EQ(algebra_->load(x, {.source = source.view()}), first);
  EXPECT_EQ(StoredBlocks(x, 3).words(), before.words());
  EXPECT_EQ(x.scale, 1);
  EXPECT_EQ(x.identity, 0);
}

INSTANTIATE_TEST_SUITE_P(Kernels, LoadTest,
                         testing::ValuesIn(usable_bf16_kernels().begin(),
                                           usable_bf16_kernels().end()),
                         kernel_name);

}  // namespace
}  // namespace canzona::linalg::load_test
