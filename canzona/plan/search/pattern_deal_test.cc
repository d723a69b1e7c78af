#include "canzona/plan/search/joint.h"

#include <gmock/gmock.h>

#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::pattern_deal_test {
namespace {

using ::testing::ElementsAre;

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

void expect_all_dealt(const Bundles& bundles) {
  std::vector<int64_t> dealt(bundles.classes().size(), 0);
  for (size_t r = 0; r < bundles.num_ranks(); ++r) {
    for (const ClassCount& c : bundles.bundle(r)) {
      dealt[static_cast<size_t>(c.item_class)] += c.count;
    }
  }
  for (size_t k = 0; k < dealt.size(); ++k) {
    EXPECT_EQ(dealt[k], bundles.classes()[k].count) << "class " << k;
  }
}

// Loads up to 10 on three ranks: 6 + 4 twice and 5 + 5 fill them all.
TEST(PatternDeal, FillsRanksByPatterns) {
  const std::vector<ItemClass> classes = classes_of({{6, 2}, {5, 2}, {4, 2}});
  Bundles bundles(classes, {1}, {0, 0, 0});
  ASSERT_TRUE(deal_by_patterns(bundles, 10));
  expect_all_dealt(bundles);
  EXPECT_EQ(bundles.objective(), 10);
}

TEST(PatternDeal, DealsNothingWhereTheCapacityIsTooSmall) {
  const std::vector<ItemClass> classes = classes_of({{6, 2}, {5, 2}, {4, 2}});
  Bundles bundles(classes, {1}, {0, 0, 0});
  EXPECT_FALSE(deal_by_patterns(bundles, 9));
  EXPECT_EQ(bundles.objective(), 0);
}

TEST(PatternDeal, DealsEveryItemOnce) {
  Random random(110);
  int dealt = 0;
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<std::pair<int64_t, int64_t>> sizes;
    int64_t sum = 0, largest = 0;
    for (int64_t i = random.between(1, 8); i > 0; --i) {
      sizes.emplace_back(random.between(0, 40), random.between(0, 20));
      sum += sizes.back().first * sizes.back().second;
      largest = std::max(largest, sizes.back().first);
    }
    const std::vector<ItemClass> classes = classes_of(sizes);
    const size_t ranks = random.pick<size_t>({1, 2, 4, 7, 8});
    const int64_t mean = sum / static_cast<int64_t>(ranks);
    Bundles bundles(classes, {1}, std::vector<int32_t>(ranks, 0));
    const int64_t capacity = std::max(largest, mean + random.between(0, 20));
    SCOPED_TRACE(cat("trial ", trial));
    if (!deal_by_patterns(bundles, capacity)) {
      EXPECT_EQ(bundles.objective(), 0);
      continue;
    }
    ++dealt;
    expect_all_dealt(bundles);
  }
  EXPECT_GT(dealt, 100);
}

TEST(PatternDeal, DoesNotApplyToZonesPeriodsOrManySizes) {
  std::vector<ItemClass> zoneed = classes_of({{3, 2}});
  zoneed[0].zone = 0;
  Bundles a(zoneed, {1}, {0, 1});
  EXPECT_FALSE(deal_by_patterns(a, 100));

  std::vector<ItemClass> refreshed = classes_of({{3, 2}});
  refreshed[0].load = {3, 4};
  Bundles b(refreshed, {9, 1}, {0, 0});
  EXPECT_FALSE(deal_by_patterns(b, 100));

  std::vector<std::pair<int64_t, int64_t>> sizes;
  for (int64_t size = 1; size <= 9; ++size) sizes.emplace_back(size, 1);
  const std::vector<ItemClass> many = classes_of(sizes);
  Bundles c(many, {1}, {0, 0});
  EXPECT_FALSE(deal_by_patterns(c, 100));
}

TEST(DistinctLoads, AreSortedAndLeaveOutWhatLoadsNobody) {
  EXPECT_THAT(
      distinct_loads(classes_of({{3, 1}, {0, 4}, {7, 2}, {3, 9}, {5, 0}})),
      ElementsAre(7, 3));
}

}  // namespace
}  // namespace canzona::plan::pattern_deal_test
