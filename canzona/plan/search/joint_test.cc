#include "canzona/plan/search/joint.h"

#include <gmock/gmock.h>

#include "canzona/plan/search/test_optimum.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::joint_test {
namespace {

using Loads = std::vector<int64_t>;

// One class of a single dimension for each size.
std::vector<ItemClass> classes_of(
    const std::vector<std::pair<int64_t, int64_t>>& sizes_and_counts) {
  std::vector<ItemClass> classes;
  for (const auto& [size, count] : sizes_and_counts) {
    ItemClass c;
    c.load = {size};
    c.count = count;
    classes.push_back(c);
  }
  return classes;
}

// Longest first deals 5, 3 | 4, 3, 3, which is 10; the mean is 9.
TEST(JointSearch, FindsBundlesThatReachTheBound) {
  const std::vector<ItemClass> classes = classes_of({{5, 1}, {4, 1}, {3, 3}});
  const Bundles bundles = search_bundles(classes, {1}, {0, 0}, 1, {});
  EXPECT_EQ(bundles.objective(), 9);
  EXPECT_EQ(objective_bound(classes, {1}, {0, 0}, 10), 9);
}

TEST(JointSearch, DealsEveryItemOnce) {
  Random random(100);
  for (int trial = 0; trial < 60; ++trial) {
    const size_t homes = random.pick<size_t>({1, 2, 4, 7, 8});
    const int32_t tp = random.pick<int32_t>({1, 2, 4});
    const bool with_zones = homes > 1 && random.coin();
    std::vector<int32_t> zones;
    for (size_t h = 0; h < homes; ++h) {
      zones.insert(zones.end(), static_cast<size_t>(tp),
                   with_zones ? static_cast<int32_t>(h % 2) : 0);
    }
    const int64_t dims = random.between(1, 3);
    std::vector<int64_t> steps(static_cast<size_t>(dims), 1);
    steps[0] = random.between(0, 9);
    std::vector<ItemClass> classes;
    for (int64_t i = random.between(1, 6); i > 0; --i) {
      ItemClass c;
      for (int64_t p = 0; p < dims; ++p)
        c.load.push_back(random.between(0, 50));
      c.count = random.between(1, 30);
      c.elements = random.between(1, 50);
      c.home_bytes = random.between(1, 50);
      if (with_zones) c.zone = random.pick<int32_t>({kAnyZone, 0, 1});
      classes.push_back(c);
    }
    const Budgets budgets{random.pick<double>({0.1, 0.5, 1}), INT64_MAX};
    const Bundles bundles = search_bundles(classes, steps, zones, tp, budgets);
    std::vector<int64_t> dealt(classes.size(), 0);
    for (size_t r = 0; r < bundles.num_ranks(); ++r) {
      for (const ClassCount& c : bundles.bundle(r)) {
        ASSERT_GT(c.count, 0);
        ASSERT_TRUE(bundles.may_own(r, c.item_class)) << "trial " << trial;
        dealt[static_cast<size_t>(c.item_class)] += c.count;
      }
    }
    for (size_t k = 0; k < classes.size(); ++k) {
      ASSERT_EQ(dealt[k], classes[k].count) << "trial " << trial;
    }
    ASSERT_GE(bundles.objective(),
              objective_bound(classes, steps, zones, bundles.objective()));
  }
}

// On small cases the search nearly always finds the optimum, although this is
// not guaranteed; the bound never exceeds it.
TEST(JointSearch, IsSeldomAboveTheOptimum) {
  Random random(101);
  int above = 0;
  for (int trial = 0; trial < 100; ++trial) {
    const int32_t ranks = random.small(2, 4);
    Loads sizes;
    std::vector<std::pair<int64_t, int64_t>> counted;
    for (int64_t i = random.between(1, 5); i > 0; --i) {
      counted.emplace_back(random.between(1, 100), random.between(1, 2));
      sizes.insert(sizes.end(), static_cast<size_t>(counted.back().second),
                   counted.back().first);
    }
    const std::vector<ItemClass> classes = classes_of(counted);
    const std::vector<int32_t> zones(static_cast<size_t>(ranks), 0);
    const int64_t best = optimum_by_subsets(sizes, ranks);
    const Bundles bundles = search_bundles(classes, {1}, zones, 1, {});
    ASSERT_GE(bundles.objective(), best) << "trial " << trial;
    ASSERT_LE(objective_bound(classes, {1}, zones, bundles.objective()), best)
        << "trial " << trial;
    above += bundles.objective() > best;
  }
  EXPECT_LE(above, 5);
}

// Eight items that only zone 0 may own: its two ranks need four each, although
// the mean over all four ranks is two.
TEST(JointSearch, BoundsKnowZones) {
  std::vector<ItemClass> classes = classes_of({{1, 8}});
  classes[0].zone = 0;
  EXPECT_EQ(objective_bound(classes, {1}, {0, 0, 1, 1}, 8), 4);
  EXPECT_EQ(search_bundles(classes, {1}, {0, 0, 1, 1}, 1, {}).objective(), 4);
}

// Zones are also solved one by one, where each has none of the other's items.
TEST(JointSearch, TakesClassesOfWhichAZoneHasNone) {
  std::vector<ItemClass> classes =
      classes_of({{5, 8}, {32, 8}, {13, 7}, {26, 1}});
  for (ItemClass& c : classes) c.zone = 0;
  classes[1].zone = 1;
  const std::vector<int32_t> zones{0, 0, 0, 1, 1, 1};
  EXPECT_EQ(search_bundles(classes, {1}, zones, 1, {}).objective(), 96);
}

// Nine ordinary steps and one refresh: 9·3 + 4, each its own bound.
TEST(JointSearch, BoundsAddTheStepsOfAPeriod) {
  std::vector<ItemClass> classes(1);
  classes[0].load = {3, 4};
  classes[0].count = 2;
  EXPECT_EQ(objective_bound(classes, {9, 1}, {0, 0}, 100), 31);
}

}  // namespace
}  // namespace canzona::plan::joint_test
