#include "canzona/rules/shampoo/blocks.h"

#include <gmock/gmock.h>

#include <vector>

#include "canzona/base/error.h"

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

using Shape = std::vector<int64_t>;

Shape merged(const Shape& dims, int merge, int64_t max_dim = 1024) {
  const AxisSizes sizes =
      merge_sizes(dims, {.max_dim = max_dim, .merge = merge});
  return {sizes.span().begin(), sizes.span().end()};
}

TEST(MergeSizes, MakesAVectorOfASmallMatrixIfAskedFor) {
  EXPECT_EQ(merged({6, 4}, 1), (Shape{24}));
  EXPECT_EQ(merged({6, 4}, 2), (Shape{6, 4}));
  EXPECT_EQ(merged({3, 4}, 1), (Shape{12}));
}

TEST(MergeSizes, BeginsAtTheLastAxis) {
  EXPECT_EQ(merged({64, 3, 7, 7}, 2), (Shape{64, 147}));
  EXPECT_EQ(merged({4, 2, 3}, 2, 6), (Shape{4, 6}));
}

TEST(MergeSizes, StopsWhereAProductIsTooLong) {
  EXPECT_EQ(merged({32, 3, 64, 64}, 2, 8192), (Shape{96, 4096}));
  EXPECT_EQ(merged({6, 4}, 1, 23), (Shape{6, 4}));
  EXPECT_EQ(merged({2048, 2048}, 1), (Shape{2048, 2048}));
}

TEST(MergeSizes, DropsOnes) {
  EXPECT_EQ(merged({1, 128}, 2), (Shape{128}));
  EXPECT_EQ(merged({128, 1}, 2), (Shape{128}));
  EXPECT_EQ(merged({1, 1, 1}, 1), (Shape{1}));
  EXPECT_EQ(merged({5, 1, 3, 1}, 2), (Shape{5, 3}));
}

TEST(MergeSizes, LeavesSizesAloneIfAskedTo) {
  EXPECT_EQ(merged({1, 5}, 0), (Shape{1, 5}));
  EXPECT_EQ(merged({4, 2, 3}, 0), (Shape{4, 2, 3}));
}

TEST(MergeSizes, KnowsNumbersAndNothing) {
  EXPECT_EQ(merged({}, 2), (Shape{1}));
  EXPECT_EQ(merged({}, 0), (Shape{1}));
  EXPECT_EQ(merged({4, 0, 3}, 2), (Shape{0}));
  EXPECT_EQ(merged({4, 0}, 0), (Shape{0}));
}

TEST(MergeSizes, RefusesMoreAxesThanItHasRoomFor) {
  EXPECT_THROW(merged(Shape(9, 2), 0), UsageError);
  EXPECT_EQ(merged(Shape(9, 2), 2), (Shape{2, 256}));
}

Shape numbers(const AxisSizes& sizes) {
  return {sizes.span().begin(), sizes.span().end()};
}

TEST(Blocking, NumbersBlocksWithAxisZeroOutermost) {
  const Blocking cut(Shape{5, 3}, {.max_dim = 2, .merge = 2});
  std::vector<Shape> starts;
  std::vector<Shape> sizes;
  for (int64_t b = 0; b < cut.num_blocks(); ++b) {
    starts.push_back(numbers(cut.block(b).start));
    sizes.push_back(numbers(cut.block(b).sizes));
  }
  EXPECT_THAT(starts, ElementsAre(Shape{0, 0}, Shape{0, 2}, Shape{2, 0},
                                  Shape{2, 2}, Shape{4, 0}, Shape{4, 2}));
  EXPECT_THAT(sizes, ElementsAre(Shape{2, 2}, Shape{2, 1}, Shape{2, 2},
                                 Shape{2, 1}, Shape{1, 2}, Shape{1, 1}));
}

TEST(Blocking, CoversEveryElementOnce) {
  const Shape dims = {5, 4, 7};
  const Blocking cut(dims, {.max_dim = 3, .merge = 0});
  std::vector<int> covered(5 * 4 * 7);
  for (int64_t b = 0; b < cut.num_blocks(); ++b) {
    const TensorBlock block = cut.block(b);
    for (int64_t i = 0; i < block.sizes[0]; ++i)
      for (int64_t j = 0; j < block.sizes[1]; ++j)
        for (int64_t k = 0; k < block.sizes[2]; ++k) {
          const int64_t at =
              ((block.start[0] + i) * 4 + block.start[1] + j) * 7 +
              block.start[2] + k;
          ++covered[static_cast<size_t>(at)];
        }
  }
  EXPECT_THAT(covered, ::testing::Each(1));
}

TEST(Blocking, CountsAcrossAxes) {
  const Blocking cut(Shape{5, 4, 7}, {.max_dim = 3, .merge = 0});
  EXPECT_EQ(cut.num_blocks(), 2 * 2 * 3);
  EXPECT_EQ(cut.blocks_across(1), 2 * 3);
  EXPECT_EQ(cut.elements_across(1), Elements(35));
}

}  // namespace
}  // namespace canzona
