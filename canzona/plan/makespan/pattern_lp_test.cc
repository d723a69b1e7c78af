#include "canzona/plan/makespan/bound.h"

#include <gmock/gmock.h>

#include "canzona/plan/makespan/test_patterns.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::pattern_lp_test {
namespace {

using ::testing::IsEmpty;

using Items = std::vector<SizeCount>;

Items random_items(Random& random, int64_t sizes, int64_t most_of_each) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < sizes; ++i) {
    const int64_t size = random.between(1, 30);
    for (int64_t n = random.between(1, most_of_each); n > 0; --n) {
      all.push_back(size);
    }
  }
  return count_sizes(all);
}

// Checks that the fractions cover every item on at most `ranks` ranks.
void expect_covers(const Items& items, int64_t ranks, int64_t capacity,
                   const PatternSolution& s) {
  ASSERT_EQ(s.patterns.size(), s.fractions.size());
  double used = 0;
  std::vector<double> dealt(items.size(), 0);
  for (size_t p = 0; p < s.patterns.size(); ++p) {
    ASSERT_EQ(s.patterns[p].size(), items.size());
    EXPECT_GT(s.fractions[p], 0);
    EXPECT_LE(load_of(items, s.patterns[p]), capacity);
    used += s.fractions[p];
    for (size_t i = 0; i < items.size(); ++i) {
      EXPECT_GE(s.patterns[p][i], 0);
      EXPECT_LE(s.patterns[p][i], items[i].count);
      dealt[i] += s.fractions[p] * static_cast<double>(s.patterns[p][i]);
    }
  }
  EXPECT_LE(used, static_cast<double>(ranks) * (1 + 1e-6));
  for (size_t i = 0; i < items.size(); ++i) {
    EXPECT_GE(dealt[i], static_cast<double>(items[i].count) * (1 - 1e-6));
  }
}

// Five threes on two ranks: with loads up to 8 a rank takes two of them, so
// that two and a half ranks are needed; with loads up to 9 a rank takes three.
TEST(PatternRelaxation, SaysWhetherFractionsOfPatternsFit) {
  const Items items{{3, 5}};
  EXPECT_EQ(relax_patterns(items, 2, 8).status, PatternSolution::kTooSmall);
  const PatternSolution fits = relax_patterns(items, 2, 9);
  EXPECT_EQ(fits.status, PatternSolution::kFits);
  expect_covers(items, 2, 9, fits);
}

TEST(PatternRelaxation, AgreesWithAllCornersOfTheDual) {
  Random random(2);
  int fits = 0, too_small = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const Items items = random_items(random, random.between(1, 3), 6);
    const int64_t ranks = random.between(1, 5);
    int64_t sum = 0;
    for (const SizeCount& s : items) sum += s.size * s.count;
    const int64_t mean = sum / ranks;
    const int64_t capacity = random.between(mean, mean + mean / 3 + 2);
    const double needed = PatternOracle(items, capacity).fewest_ranks();
    const PatternSolution s = relax_patterns(items, ranks, capacity);
    SCOPED_TRACE(cat("trial ", trial, ": ", needed, " of ", ranks));
    if (needed > static_cast<double>(ranks) + 1e-6) {
      ASSERT_EQ(s.status, PatternSolution::kTooSmall);
      EXPECT_THAT(s.patterns, IsEmpty());
      ++too_small;
    } else {
      ASSERT_EQ(s.status, PatternSolution::kFits);
      expect_covers(items, ranks, capacity, s);
      ++fits;
    }
  }
  EXPECT_GT(fits, 100);
  EXPECT_GT(too_small, 100);
}

// Whatever can be dealt in whole items can be dealt in fractions.
TEST(PatternRelaxation, NeverRefusesWhatWasDealt) {
  Random random(3);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t ranks = random.between(1, 12);
    const std::vector<int64_t> sizes{90, 64, 49, 36, 25, 16, 9, 4};
    std::vector<int64_t> all;
    int64_t capacity = 0;
    for (int64_t r = 0; r < ranks; ++r) {
      int64_t load = 0;
      for (int64_t n = random.between(1, 6); n > 0; --n) {
        all.push_back(random.pick(sizes));
        load += all.back();
      }
      capacity = std::max(capacity, load);
    }
    const Items items = count_sizes(all);
    const PatternSolution s = relax_patterns(items, ranks, capacity);
    SCOPED_TRACE(cat("trial ", trial));
    ASSERT_EQ(s.status, PatternSolution::kFits);
    expect_covers(items, ranks, capacity, s);
  }
}

TEST(PatternRelaxation, RefusesAnItemAboveTheCapacity) {
  const Items items{{10, 1}, {1, 3}};
  EXPECT_EQ(relax_patterns(items, 8, 9).status, PatternSolution::kTooSmall);
  EXPECT_EQ(relax_patterns(items, 8, 10).status, PatternSolution::kFits);
}

TEST(PatternRelaxation, NothingFitsAnywhere) {
  EXPECT_EQ(relax_patterns({}, 1, 0).status, PatternSolution::kFits);
}

TEST(PatternRelaxation, DoesNotKnowMoreSizesThanItTakes) {
  Items items;
  for (int64_t size = static_cast<int64_t>(kMaxPatternSizes); size > 0;
       --size) {
    items.push_back({size, 1});
  }
  EXPECT_EQ(relax_patterns(items, 1, 1000).status, PatternSolution::kFits);
  items.insert(items.begin(), {100, 1});
  EXPECT_EQ(relax_patterns(items, 1, 1000).status, PatternSolution::kUnknown);
}

}  // namespace
}  // namespace canzona::plan::pattern_lp_test
