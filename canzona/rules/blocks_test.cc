#include "canzona/rules/blocks.h"

#include <gmock/gmock.h>

#include <vector>

#include "canzona/base/error.h"

namespace canzona::rules::rules_blocks_test {
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

Shape numbers(const AxisSizes& sizes) {
  return {sizes.span().begin(), sizes.span().end()};
}

TEST(Blocking, NumbersBlocksWithAxisZeroOutermost) {
  const Blocking cut(AxisSizes(Shape{5, 3}), 2);
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
  const Blocking cut(AxisSizes(dims), 3);
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
  const Blocking cut(AxisSizes(Shape{5, 4, 7}), 3);
  EXPECT_EQ(cut.num_blocks(), 2 * 2 * 3);
  EXPECT_EQ(cut.blocks_across(1), 2 * 3);
  EXPECT_EQ(cut.elements_across(1), Elements(35));
}

// 5 x 3 cut at 2 has blocks 0 1 / 2 3 / 4 5; 4 and 5 are short along axis 0,
// and 1, 3 and 5 along axis 1.
TEST(Blocking, StacksBlocksOfEqualLengthInTheirOrder) {
  const Blocking cut(AxisSizes(Shape{5, 3}), 2);
  std::vector<Shape> left;
  std::vector<Shape> right;
  for (int64_t b = 0; b < 6; ++b) {
    for (int axis : {0, 1}) {
      const StackPlace at = cut.stack_place(cut.block(b), axis);
      (axis == 0 ? left : right)
          .push_back({static_cast<int64_t>(at.kind), at.place, at.stack});
    }
  }
  EXPECT_THAT(left,
              ElementsAre(Shape{0, 0, 4}, Shape{0, 1, 4}, Shape{0, 2, 4},
                          Shape{0, 3, 4}, Shape{1, 0, 2}, Shape{1, 1, 2}));
  EXPECT_THAT(right,
              ElementsAre(Shape{0, 0, 3}, Shape{1, 0, 3}, Shape{0, 1, 3},
                          Shape{1, 1, 3}, Shape{0, 2, 3}, Shape{1, 2, 3}));
}

TEST(Blocking, FindsTheBlockAtAPlaceOfAStack) {
  for (const Shape& dims : {Shape{5, 3}, Shape{4, 4}, Shape{1, 7, 5}})
    for (int axis = 0; axis < static_cast<int>(dims.size()); ++axis) {
      const Blocking cut(AxisSizes(dims), 2);
      for (int64_t b = 0; b < cut.num_blocks(); ++b) {
        const StackPlace at = cut.stack_place(cut.block(b), axis);
        EXPECT_EQ(cut.block_at(axis, at.kind, at.place), b) << axis;
      }
    }
}

TEST(Blocking, LeavesWholeWhatIsNotToBeCut) {
  const Blocking cut(AxisSizes(Shape{5, int64_t{1} << 40}), Blocking::kUncut);
  EXPECT_EQ(cut.num_blocks(), 1);
  EXPECT_EQ(numbers(cut.block(0).sizes), numbers(cut.sizes()));
  EXPECT_EQ(cut.stack_size(1, 0), 1);
}

TEST(Blocking, HasNoBlocksWhereThereAreNoElements) {
  const Blocking cut(AxisSizes(Shape{int64_t{1} << 40, int64_t{1} << 40, 0}),
                     Blocking::kUncut);
  EXPECT_TRUE(cut.empty());
  EXPECT_EQ(cut.num_blocks(), 0);
}

TEST(AxisSizes, RefuseMoreThanTheyHaveRoomFor) {
  EXPECT_EQ(AxisSizes(Shape(8, 2)).product(), 256);
  EXPECT_THROW(AxisSizes(Shape(9, 2)), UsageError);
}

TEST(AxisSizes, CheckTheirProduct) {
  EXPECT_THROW(AxisSizes(Shape(2, int64_t{1} << 40)).product(), UsageError);
}

}  // namespace
}  // namespace canzona::rules::rules_blocks_test
