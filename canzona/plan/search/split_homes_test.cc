#include "canzona/plan/search/joint.h"

#include <gtest/gtest.h>

#include <numeric>

namespace canzona::plan::split_homes_test {
namespace {

ItemClass tensor_of(const std::vector<int64_t>& matrices, int64_t count) {
  ItemClass c;
  c.load = {std::accumulate(matrices.begin(), matrices.end(), int64_t{0})};
  c.count = count;
  return c;
}

std::vector<std::vector<int64_t>> loads(const std::vector<int64_t>& matrices) {
  std::vector<std::vector<int64_t>> out;
  for (int64_t m : matrices) out.push_back({m});
  return out;
}

int64_t count_of(const Bundles& homes, int32_t item_class) {
  int64_t sum = 0;
  for (size_t h = 0; h < homes.num_ranks(); ++h) {
    for (const ClassCount& c : homes.bundle(h)) {
      if (c.item_class == item_class) sum += c.count;
    }
  }
  return sum;
}

// Two homes of two ranks: three large matrices meet on the two ranks of the
// first.
TEST(SplitHomes, LowersTheMakespanInsideHomes) {
  const std::vector<ItemClass> classes{tensor_of({4}, 3), tensor_of({2, 2}, 1)};
  const MatrixLoads matrices{loads({4}), loads({2, 2})};
  Bundles homes(classes, {1}, {0, 0});
  homes.add(0, 0, 3);
  homes.add(1, 1, 1);
  EXPECT_EQ(improve_split_homes(homes, matrices, 2, 0), 8);
  EXPECT_EQ(improve_split_homes(homes, matrices, 2, 1000), 4);
  EXPECT_EQ(count_of(homes, 0), 3);
  EXPECT_EQ(count_of(homes, 1), 1);
}

TEST(SplitHomes, LongestFirstKeepsTensorsWhole) {
  const std::vector<ItemClass> classes{tensor_of({5, 1}, 2),
                                       tensor_of({3, 3}, 2)};
  const MatrixLoads matrices{loads({5, 1}), loads({3, 3})};
  Bundles homes(classes, {1}, {0, 0});
  deal_split_longest_first(homes, matrices, 2);
  EXPECT_EQ(count_of(homes, 0), 2);
  EXPECT_EQ(count_of(homes, 1), 2);
  // Loads are 5+1 | 3+3 in each home at best.
  EXPECT_EQ(improve_split_homes(homes, matrices, 2, 1000), 6);
}

TEST(SplitHomes, ZonesAreRespected) {
  std::vector<ItemClass> classes{tensor_of({4, 4}, 2)};
  classes[0].zone = 1;
  Bundles homes(classes, {1}, {0, 1});
  deal_split_longest_first(homes, {loads({4, 4})}, 2);
  EXPECT_TRUE(homes.bundle(0).empty());
  EXPECT_EQ(improve_split_homes(homes, {loads({4, 4})}, 2, 1000), 8);
  EXPECT_TRUE(homes.bundle(0).empty());
}

}  // namespace
}  // namespace canzona::plan::split_homes_test
