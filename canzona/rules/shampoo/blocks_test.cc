#include "canzona/rules/shampoo/blocks.h"

#include <gmock/gmock.h>

namespace canzona {
namespace {

using ::testing::ElementsAre;
using Kind = BlockedSide::Kind;

TEST(BlockedSide, CutsFullBlocksAndARest) {
  const BlockedSide side(5, 2);
  EXPECT_THAT(side.kinds(), ElementsAre(Kind{2, 2}, Kind{1, 1}));
  EXPECT_EQ(side.num_blocks(), 3);
  EXPECT_EQ(side.sum_of_squares(), Flops(9));
  EXPECT_EQ(side.sum_of_cubes(), Flops(17));
}

TEST(BlockedSide, HasNoRestWhereTheLengthDivides) {
  EXPECT_THAT(BlockedSide(6, 2).kinds(), ElementsAre(Kind{3, 2}));
}

TEST(BlockedSide, LeavesAShortSideWhole) {
  EXPECT_THAT(BlockedSide(3, 1024).kinds(), ElementsAre(Kind{1, 3}));
}

TEST(BlockedSide, CountsWithoutWalking) {
  const BlockedSide side((int64_t{1} << 40) + 3, 1024);
  EXPECT_EQ(side.num_blocks(), (int64_t{1} << 30) + 1);
  EXPECT_EQ(side.sum_of_squares(), Flops((int64_t{1} << 50) + 9));
}

TEST(BlockedSide, MatchesAWalkOverItsBlocks) {
  for (int64_t max_dim : {1, 2, 3, 7, 50}) {
    for (int64_t length = 0; length < 40; ++length) {
      int64_t squares = 0;
      int64_t cubes = 0;
      int64_t blocks = 0;
      for (int64_t left = length; left > 0; left -= max_dim) {
        const int64_t d = left < max_dim ? left : max_dim;
        squares += d * d;
        cubes += d * d * d;
        ++blocks;
      }
      const BlockedSide side(length, max_dim);
      EXPECT_EQ(side.num_blocks(), blocks);
      EXPECT_EQ(side.sum_of_squares(), Flops(squares));
      EXPECT_EQ(side.sum_of_cubes(), Flops(cubes));
    }
  }
}

}  // namespace
}  // namespace canzona
