#include "canzona/data/batches.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "canzona/base/error.h"

namespace canzona::data::permutation_test {
namespace {

std::vector<int64_t> order_of(int64_t n, uint64_t key) {
  const Permutation order(n, key);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(order(i));
  return all;
}

TEST(Permutation, GivesEveryNumberOnce) {
  for (int64_t n = 1; n <= 200; ++n)
    for (uint64_t key : {0, 1, 7}) {
      std::vector<int64_t> all = order_of(n, key);
      std::vector<int64_t> wanted(all.size());
      std::iota(wanted.begin(), wanted.end(), 0);
      std::ranges::sort(all);
      EXPECT_EQ(all, wanted) << "n " << n << " key " << key;
    }
}

TEST(Permutation, StaysInsideAndApartForHugeNumbers) {
  for (int64_t n :
       {int64_t{1} << 31, (int64_t{1} << 40) + 12345, int64_t{1} << 62}) {
    const Permutation order(n, 3);
    std::set<int64_t> seen;
    for (int64_t k = 0; k < 5000; ++k) {
      const int64_t i = n / 5000 * k;
      const int64_t value = order(i);
      EXPECT_GE(value, 0);
      EXPECT_LT(value, n);
      EXPECT_TRUE(seen.insert(value).second) << "n " << n << " i " << i;
    }
  }
}

// Existing runs must continue identically on other machines and versions.
TEST(Permutation, IsTheSameEverywhere) {
  EXPECT_EQ(order_of(10, 1),
            (std::vector<int64_t>{5, 6, 0, 9, 7, 8, 1, 4, 2, 3}));
}

TEST(Permutation, DependsOnTheKey) {
  EXPECT_NE(order_of(100, 1), order_of(100, 2));
}

// Neither a shift nor nearly sorted: half of all neighbours rise.
TEST(Permutation, Mixes) {
  const std::vector<int64_t> all = order_of(10'000, 5);
  int rising = 0;
  double distance = 0;
  for (size_t i = 1; i < all.size(); ++i) {
    rising += all[i] > all[i - 1] ? 1 : 0;
    distance += std::abs(static_cast<double>(all[i] - all[i - 1]));
  }
  EXPECT_NEAR(rising, 5000, 200);
  EXPECT_NEAR(distance / 10'000, 3333, 150);  // a third of n
}

TEST(Permutation, RefusesNumbersOutside) {
  EXPECT_THROW(Permutation(0, 1), InternalError);
  EXPECT_THROW(Permutation(5, 1)(5), InternalError);
  EXPECT_THROW(Permutation(5, 1)(-1), InternalError);
}

}  // namespace
}  // namespace canzona::data::permutation_test
