#include "canzona/rules/shampoo/facts.h"

#include <gmock/gmock.h>

#include <vector>

#include "canzona/base/error.h"

namespace canzona::rules::shampoo_blocks_test {
namespace {

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

}  // namespace
}  // namespace canzona::rules::shampoo_blocks_test
