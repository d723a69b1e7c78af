#include "canzona/linalg/gradient_numbers.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "canzona/base/error.h"

namespace canzona::linalg::wide_sum_test {
namespace {

constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();

TEST(WideSum, CarriesFromTheLowerWordToTheUpper) {
  WideSum sum{kAll, 3};
  sum.add({1, 0});
  EXPECT_EQ(sum, (WideSum{0, 4}));
  sum.add({kAll, kAll});
  EXPECT_EQ(sum, (WideSum{kAll, 3})) << "modulo 2^128";
  sum.add({kAll, 1});
  EXPECT_EQ(sum, (WideSum{kAll - 1, 5}));
}

void check(float largest, int exponent) {
  check_squares_fit(std::bit_cast<uint32_t>(largest), exponent);
}

TEST(CheckSquaresFit, TakesWhatScalesToAtMost2To31) {
  using Limits = std::numeric_limits<float>;
  check(1, 31);
  EXPECT_THROW(check(1.0000001F, 31), InternalError);
  EXPECT_THROW(check(1, 32), InternalError);
  check(Limits::max(), -97);
  EXPECT_THROW(check(Limits::max(), -96), InternalError);
  check(Limits::max(), -kMostExponent);
  check(Limits::denorm_min(), 180);
  EXPECT_THROW(check(Limits::denorm_min(), 181), InternalError);
  check(0, kMostExponent);
}

TEST(CheckSquaresFit, RefusesWhatIsNotFiniteAndForeignExponents) {
  using Limits = std::numeric_limits<float>;
  EXPECT_THROW(check(Limits::infinity(), -200), InternalError);
  EXPECT_THROW(check(Limits::quiet_NaN(), -200), InternalError);
  EXPECT_THROW(check(0, kMostExponent + 1), InternalError);
  EXPECT_THROW(check(0, -kMostExponent - 1), InternalError);
}

}  // namespace
}  // namespace canzona::linalg::wide_sum_test
