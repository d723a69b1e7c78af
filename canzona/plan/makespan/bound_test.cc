#include "canzona/plan/makespan/bound.h"

#include <gmock/gmock.h>

#include "canzona/plan/makespan/test_patterns.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::bound_test {
namespace {

using Items = std::vector<SizeCount>;
using Sizes = std::vector<int64_t>;

int64_t sum_of(const Items& items) {
  int64_t sum = 0;
  for (const SizeCount& s : items) sum += s.size * s.count;
  return sum;
}

// Returns the optimal makespan by trying all assignments to interchangeable
// ranks.
int64_t best_of_all(const Sizes& sizes, size_t i, Sizes& loads) {
  if (i == sizes.size()) return *std::max_element(loads.begin(), loads.end());
  int64_t best = INT64_MAX;
  for (size_t r = 0; r < loads.size(); ++r) {
    const bool first_empty = loads[r] == 0;
    loads[r] += sizes[i];
    best = std::min(best, best_of_all(sizes, i + 1, loads));
    loads[r] -= sizes[i];
    if (first_empty) break;  // the other empty ranks offer the same
  }
  return best;
}

int64_t optimum(const Sizes& sizes, int64_t ranks) {
  Sizes loads(static_cast<size_t>(ranks), 0);
  return best_of_all(sizes, 0, loads);
}

// Returns `count` items whose sizes are drawn from `distinct` different ones.
Sizes random_sizes(Random& random, int64_t count, int64_t distinct) {
  Sizes known;
  while (static_cast<int64_t>(known.size()) < distinct) {
    const int64_t size = random.between(1, 60);
    if (std::find(known.begin(), known.end(), size) == known.end()) {
      known.push_back(size);
    }
  }
  Sizes sizes = known;
  while (static_cast<int64_t>(sizes.size()) < count) {
    sizes.push_back(random.pick(known));
  }
  return sizes;
}

// Five threes on two ranks have a mean of 7.5; but one rank gets three of them.
TEST(LowerBound, KnowsThatItemsAreWhole) {
  const Items items{{3, 5}};
  EXPECT_EQ(simple_bound(items, 2), 8);
  EXPECT_EQ(lower_bound(items, 2, 12), 9);
}

TEST(SimpleBound, IsTheMeanRoundedUp) {
  EXPECT_EQ(simple_bound(Items{{2, 3}, {1, 4}}, 3), 4);
  EXPECT_EQ(simple_bound(Items{{2, 3}, {1, 3}}, 3), 3);
}

TEST(SimpleBound, IsTheLargest) {
  EXPECT_EQ(simple_bound(Items{{9, 1}, {1, 3}}, 4), 9);
}

// Two of the four largest meet on three ranks: at best the third and fourth.
TEST(SimpleBound, IsTheLeastPairThatMeets) {
  EXPECT_EQ(simple_bound(Items{{9, 1}, {8, 1}, {7, 1}, {6, 1}}, 3), 13);
  EXPECT_EQ(simple_bound(Items{{9, 1}, {8, 1}, {7, 1}}, 3), 9);
}

TEST(SimpleBound, OfNothingIsNothing) {
  EXPECT_EQ(simple_bound({}, 4), 0);
  EXPECT_EQ(lower_bound({}, 4, 0), 0);
}

TEST(LowerBound, IsNeverAboveTheOptimumOfFewSizes) {
  Random random(4);
  for (int trial = 0; trial < 200; ++trial) {
    const Sizes sizes = random_sizes(random, 9, random.between(1, 8));
    const int64_t ranks = random.between(1, 4);
    const int64_t best = optimum(sizes, ranks);
    const Items items = count_sizes(sizes);
    ASSERT_LE(simple_bound(items, ranks), best) << "trial " << trial;
    const int64_t bound = lower_bound(items, ranks, best);
    ASSERT_LE(bound, best) << "trial " << trial;
    ASSERT_GE(bound, simple_bound(items, ranks)) << "trial " << trial;
    // A larger `upper` does not change the bound.
    ASSERT_EQ(lower_bound(items, ranks, 2 * best), bound) << "trial " << trial;
  }
}

TEST(LowerBound, IsNeverAboveTheOptimumOfManySizes) {
  Random random(5);
  for (int trial = 0; trial < 60; ++trial) {
    const Sizes sizes = random_sizes(random, 10, 10);
    const int64_t ranks = random.between(1, 4);
    const int64_t best = optimum(sizes, ranks);
    const Items items = count_sizes(sizes);
    ASSERT_LE(lower_bound(items, ranks, best), best) << "trial " << trial;
    ASSERT_EQ(lower_bound(items, ranks, 1000), simple_bound(items, ranks));
  }
}

// Returns the smallest feasible capacity by trying all of them in ascending
// order.
TEST(LowerBound, IsTheSmallestCapacityOfTheRelaxation) {
  Random random(6);
  int above_simple = 0;
  for (int trial = 0; trial < 150; ++trial) {
    const Items items = count_sizes(
        random_sizes(random, random.between(4, 12), random.between(1, 3)));
    const int64_t ranks = random.between(2, 5);
    int64_t smallest = simple_bound(items, ranks);
    while (PatternOracle(items, smallest).fewest_ranks() >
           static_cast<double>(ranks) + 1e-6) {
      ++smallest;
    }
    ASSERT_EQ(lower_bound(items, ranks, sum_of(items)), smallest)
        << "trial " << trial;
    above_simple += smallest > simple_bound(items, ranks);
  }
  EXPECT_GT(above_simple, 20);
}

// Qwen3-1.7B, separate, with m the shorter side, 6m²n + 14m³: per layer q and o
// (2048 × 2048), k and v (1024 × 2048), gate, up and down (6144 × 2048). On 64
// ranks the optimum is 1.02657 times the mean, and the bound proves it.
TEST(LowerBound, IsTightForQwen3) {
  auto gram = [](int64_t m, int64_t n) {
    return 6 * m * m * n + 14 * m * m * m;
  };
  const Items items{{gram(2048, 6144), 3 * 28},
                    {gram(2048, 2048), 2 * 28},
                    {gram(1024, 2048), 2 * 28}};
  const double mean = static_cast<double>(sum_of(items)) / 64;
  const int64_t bound = lower_bound(items, 64, 2 * static_cast<int64_t>(mean));
  EXPECT_NEAR(static_cast<double>(bound) / mean, 1.02657, 0.000005);
}

}  // namespace
}  // namespace canzona::plan::bound_test
