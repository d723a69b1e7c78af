#include "canzona/base/random.h"

#include <gtest/gtest.h>

namespace canzona::random_test {
namespace {

TEST(BitsAt, IsTheWellKnownGenerator) {
  EXPECT_EQ(bits_at(0, 0), 0xE220A8397B1DCDAFULL);
  EXPECT_EQ(bits_at(0, 1), 0x6E789E6AA1B965F4ULL);
  EXPECT_NE(bits_at(1, 0), bits_at(0, 0));
}

TEST(UniformAt, FillsItsRangeEvenly) {
  double sum = 0, least = 1, most = -1;
  for (uint64_t i = 0; i < 10000; ++i) {
    const double x = uniform_at(7, i);
    ASSERT_GE(x, -1);
    ASSERT_LT(x, 1);
    EXPECT_EQ(x * 0x1p23, std::floor(x * 0x1p23));
    sum += x;
    least = std::min(least, x);
    most = std::max(most, x);
  }
  EXPECT_NEAR(sum / 10000, 0, 0.03);
  EXPECT_LT(least, -0.99);
  EXPECT_GT(most, 0.99);
}

TEST(NormalAt, HasMeanZeroAndVarianceOne) {
  double sum = 0, squares = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    const double x = normal_at(3, i);
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 20000, 0, 0.03);
  EXPECT_NEAR(squares / 20000, 1, 0.05);
}

}  // namespace
}  // namespace canzona::random_test
