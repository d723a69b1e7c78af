#include "canzona/plan/makespan/bound.h"

#include <gmock/gmock.h>

#include "canzona/plan/makespan/test_patterns.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::knapsack_test {
namespace {

using ::testing::ElementsAre;

// Returns the largest value by trying all patterns.
double dearest_of_all(const std::vector<SizeCount>& items,
                      const std::vector<double>& values, int64_t room,
                      size_t i = 0) {
  if (i == items.size()) return 0;
  double best = 0;
  for (int64_t n = 0; n <= items[i].count && n * items[i].size <= room; ++n) {
    const double rest =
        dearest_of_all(items, values, room - n * items[i].size, i + 1);
    best = std::max(best, static_cast<double>(n) * values[i] + rest);
  }
  return best;
}

std::vector<SizeCount> random_items(Random& random, int64_t sizes) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < sizes; ++i) {
    const int64_t size = random.between(1, 40);
    for (int64_t n = random.between(1, 4); n > 0; --n) all.push_back(size);
  }
  return count_sizes(all);
}

// Two sixes would be worth more a piece, but fill 12 of 14; a six and two fours
// fill it.
TEST(Knapsack, FindsTheDearestPattern) {
  const std::vector<SizeCount> items{{6, 3}, {4, 2}};
  const auto best = best_pattern(items, std::vector{6.1, 4.0}, 14);
  ASSERT_TRUE(best);
  EXPECT_THAT(best->counts, ElementsAre(1, 2));
  EXPECT_DOUBLE_EQ(best->value, 14.1);
  EXPECT_EQ(load_of(items, best->counts), 14);
}

TEST(Knapsack, IsAsGoodAsTryingAllPatterns) {
  Random random(1);
  for (int trial = 0; trial < 500; ++trial) {
    const auto items = random_items(random, random.between(1, 5));
    std::vector<double> values;
    for (size_t i = 0; i < items.size(); ++i) {
      values.push_back(static_cast<double>(random.between(-10, 100)) / 7);
    }
    const int64_t capacity = random.between(0, 150);
    const auto best = best_pattern(items, values, capacity);
    ASSERT_TRUE(best) << "trial " << trial;
    double value = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      ASSERT_GE(best->counts[i], 0);
      ASSERT_LE(best->counts[i], items[i].count);
      value += static_cast<double>(best->counts[i]) * values[i];
    }
    ASSERT_LE(load_of(items, best->counts), capacity) << "trial " << trial;
    ASSERT_NEAR(best->value, value, 1e-9) << "trial " << trial;
    ASSERT_NEAR(value, dearest_of_all(items, values, capacity), 1e-9)
        << "trial " << trial;
  }
}

TEST(Knapsack, LeavesOutWhatIsWorthNothing) {
  const std::vector<SizeCount> items{{5, 2}, {3, 2}, {1, 9}};
  const auto best = best_pattern(items, std::vector{-1.0, 2.0, 0.0}, 100);
  ASSERT_TRUE(best);
  EXPECT_THAT(best->counts, ElementsAre(0, 2, 0));
}

TEST(Knapsack, TakesNothingWithoutRoom) {
  const std::vector<SizeCount> items{{5, 2}};
  const auto best = best_pattern(items, std::vector{1.0}, 4);
  ASSERT_TRUE(best);
  EXPECT_THAT(best->counts, ElementsAre(0));
  EXPECT_EQ(best->value, 0);
}

// Even sizes never fill an odd capacity, so the bound never prunes the search.
TEST(Knapsack, SaysWhenItGivesUp) {
  std::vector<SizeCount> items;
  std::vector<double> values;
  for (int64_t size = 114; size >= 100; size -= 2) {
    items.push_back({size, 100});
    values.push_back(static_cast<double>(size));
  }
  EXPECT_FALSE(best_pattern(items, values, 5001));
}

}  // namespace
}  // namespace canzona::plan::knapsack_test
