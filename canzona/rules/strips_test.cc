#include "canzona/rules/strips.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace canzona::rules::strips_test {
namespace {

using ::testing::ElementsAre;

TEST(Strips, AreCutAtMultiplesOf64) {
  EXPECT_THAT(strip_borders(512, 4), ElementsAre(0, 128, 256, 384, 512));
  EXPECT_THAT(strip_borders(25600, 2), ElementsAre(0, 12800, 25600));
  EXPECT_THAT(strip_borders(300, 2), ElementsAre(0, 128, 300));
  EXPECT_THAT(strip_borders(1000, 4), ElementsAre(0, 256, 512, 768, 1000));
  // 96 is as far from 64 as from 128.
  EXPECT_THAT(strip_borders(192, 2), ElementsAre(0, 128, 192));
}

TEST(Strips, OneIsTheWholeSide) {
  EXPECT_THAT(strip_borders(0, 1), ElementsAre(0, 0));
  EXPECT_THAT(strip_borders(1, 1), ElementsAre(0, 1));
  EXPECT_THAT(strip_borders(777, 1), ElementsAre(0, 777));
}

TEST(Strips, AreHalvedUntilEachHas64) {
  EXPECT_EQ(strips_that_fit(512, 8), 8);
  EXPECT_EQ(strips_that_fit(511, 8), 4);
  EXPECT_EQ(strips_that_fit(255, 8), 2);
  EXPECT_EQ(strips_that_fit(127, 8), 1);
  EXPECT_EQ(strips_that_fit(0, 8), 1);
  EXPECT_EQ(strips_that_fit(100000, 4), 4);
  EXPECT_EQ(strips_that_fit(100000, 7), 4);
  EXPECT_EQ(strips_that_fit(100000, 1), 1);
  EXPECT_EQ(strips_that_fit(100000, 64), 8);
}

// The nearest multiples, found by exhaustive search.
TEST(Strips, BordersAreTheNearestAndNoStripIsEmpty) {
  for (int64_t side = 64; side < 1200; ++side) {
    const int strips = strips_that_fit(side, 8);
    const std::vector<int64_t> borders = strip_borders(side, strips);
    ASSERT_EQ(borders.size(), static_cast<size_t>(strips) + 1);
    EXPECT_EQ(borders.front(), 0);
    EXPECT_EQ(borders.back(), side);
    int64_t widest = 0;
    for (int i = 1; i <= strips; ++i) {
      const size_t at = static_cast<size_t>(i);
      EXPECT_LT(borders[at - 1], borders[at]);
      widest = std::max(widest, borders[at] - borders[at - 1]);
      if (i == strips) continue;
      const double exact = static_cast<double>(side) * i / strips;
      double least = 1e9;
      for (int64_t b = 0; b <= side + 64; b += 64)
        least = std::min(least, std::abs(static_cast<double>(b) - exact));
      EXPECT_EQ(borders[at] % 64, 0);
      EXPECT_EQ(std::abs(static_cast<double>(borders[at]) - exact), least);
    }
    EXPECT_EQ(widest_strip(side, strips), widest);
  }
}

TEST(Strips, OfVeryLongSidesDoNotOverflow) {
  const int64_t side = std::numeric_limits<int64_t>::max() - 63;
  const std::vector<int64_t> borders = strip_borders(side, 8);
  for (size_t s = 0; s < 8; ++s) EXPECT_LT(borders[s], borders[s + 1]);
}

}  // namespace
}  // namespace canzona::rules::strips_test
