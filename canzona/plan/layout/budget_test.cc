#include "canzona/plan/layout/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::budget_test {
namespace {

constexpr double kThirtyPercent = 3.0 / 13.0;  // 1 / (1 - alpha) is 1.3
using Shards = std::vector<int64_t>;

// Ten tensors of 100 on ten homes: 1.3 times the even share of 100.
TEST(Budget, IsAMultipleOfTheEvenShare) {
  EXPECT_DOUBLE_EQ(share_limit(1000, 10, kThirtyPercent), 130);
  EXPECT_EQ(bucket_cap(Shards(10, 100), 10, kThirtyPercent), 130);
  EXPECT_EQ(bucket_cap(Shards(10, 100), 10, 0.5), 200);
  EXPECT_EQ(bucket_cap(Shards(10, 100), 10, 0), 100);
}

TEST(Budget, IsNeverBelowTheLargestTensor) {
  EXPECT_EQ(bucket_cap(Shards{700, 100, 100, 100}, 10, kThirtyPercent), 700);
  EXPECT_EQ(bucket_cap(Shards{7}, 512, 0), 7);
}

TEST(Budget, AlphaOneHasNone) {
  EXPECT_TRUE(std::isinf(share_limit(1000, 10, 1)));
  EXPECT_EQ(bucket_cap(Shards(10, 100), 10, 1), 1000);
}

// The largest number below 1 must not be tighter than 0.9.
TEST(Budget, GrowsWithAlpha) {
  const Shards shards(8, int64_t{1} << 40);
  int64_t before = 0;
  for (double alpha : {0.0, 0.25, 0.5, 0.9, 0.999, std::nextafter(1.0, 0.0)}) {
    const int64_t cap = bucket_cap(shards, 8, alpha);
    EXPECT_GE(cap, before) << alpha;
    before = cap;
  }
  EXPECT_GE(before, int64_t{8} << 40);
}

// Shares that are whole numbers must fit whatever 1 - alpha rounds to.
TEST(Budget, RoundingTurnsNoExactShareAway) {
  for (int64_t homes : {2, 4, 7, 8, 10}) {
    for (int64_t share : {1, 10, 1'000'003, 400'000'000}) {
      // Every home may keep 13/10 of 10 shares.
      const Shards shards(static_cast<size_t>(homes), 10 * share);
      EXPECT_EQ(bucket_cap(shards, homes, kThirtyPercent), 13 * share);
    }
  }
}

TEST(Budget, OfNothingIsNothing) {
  for (double alpha : {0.0, kThirtyPercent, 1.0}) {
    EXPECT_EQ(bucket_cap({}, 4, alpha), 0);
    EXPECT_EQ(reachable_bucket_cap({}, 4, alpha), 0);
  }
}

// Nine equal tensors on eight homes: one home keeps two, though 1.3 times the
// even share is 1.46.
TEST(Budget, IsRaisedWhereWholeTensorsCannotMeetIt) {
  const Shards nine(9, 100);
  EXPECT_EQ(bucket_cap(nine, 8, kThirtyPercent), 146);
  EXPECT_EQ(reachable_bucket_cap(nine, 8, kThirtyPercent), 200);
  EXPECT_EQ(reachable_bucket_cap(nine, 8, 0.9), bucket_cap(nine, 8, 0.9));
}

// Returns the smallest possible size of the largest home, over all assignments
// of shards.
int64_t best_dealing(const Shards& shards, size_t next, Shards& homes) {
  if (next == shards.size()) {
    return *std::max_element(homes.begin(), homes.end());
  }
  int64_t best = INT64_MAX;
  for (size_t h = 0; h < homes.size(); ++h) {
    homes[h] += shards[next];
    best = std::min(best, best_dealing(shards, next + 1, homes));
    homes[h] -= shards[next];
    if (homes[h] == 0) break;  // empty homes are alike
  }
  return best;
}

TEST(Budget, IsReachable) {
  Random random(1);
  for (int64_t homes : {1, 2, 4, 7, 8}) {
    for (int instance = 0; instance < 20; ++instance) {
      Shards shards(static_cast<size_t>(random.between(0, 7)));
      for (int64_t& s : shards) s = random.between(0, 12);
      Shards empty(static_cast<size_t>(homes), 0);
      const int64_t best = best_dealing(shards, 0, empty);
      for (double alpha : {0.0, kThirtyPercent, 0.5}) {
        const int64_t cap = reachable_bucket_cap(shards, homes, alpha);
        EXPECT_GE(cap, best);
        // Longest-first dealing is within a third of the best.
        EXPECT_LE(cap,
                  std::max(bucket_cap(shards, homes, alpha), best + best / 3));
      }
    }
  }
}

}  // namespace
}  // namespace canzona::plan::budget_test
