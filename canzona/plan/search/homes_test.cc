#include "canzona/plan/search/bundles.h"

#include <gmock/gmock.h>

#include <numeric>

#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::homes_test {
namespace {

struct Weights {
  int64_t cost, memory, elements;
};

// Gives each item a rank of its own, in order.
struct OneEach {
  std::vector<ItemClass> classes;
  std::optional<Bundles> bundles;

  OneEach(const std::vector<Weights>& items, std::vector<int32_t> zones) {
    for (const Weights& w : items) {
      classes.push_back({{w.cost}, 1, w.elements, w.memory, 0, kAnyZone});
    }
    bundles.emplace(classes, std::vector<int64_t>{1}, std::move(zones));
    for (size_t r = 0; r < items.size(); ++r) {
      bundles->add(r, static_cast<int32_t>(r), 1);
    }
  }
};

std::vector<HomeWeight> homes_of(const Bundles& bundles, size_t tp) {
  std::vector<HomeWeight> homes(bundles.num_ranks() / tp);
  for (size_t r = 0; r < bundles.num_ranks(); ++r) {
    for (const ClassCount& c : bundles.bundle(r)) {
      const ItemClass& item =
          bundles.classes()[static_cast<size_t>(c.item_class)];
      HomeWeight& home = homes[r / tp];
      for (size_t p = 0; p < bundles.dims(); ++p) {
        home.cost += c.count * bundles.steps()[p] * item.load[p];
      }
      home.memory += c.count * (item.home_bytes + item.owner_bytes);
      home.elements += c.count * item.elements;
    }
  }
  return homes;
}

// Returns limits that bound only elements.
HomeLimits at_most(int64_t elements) {
  HomeLimits limits;
  limits.elements = elements;
  return limits;
}

int64_t most(const std::vector<HomeWeight>& homes, int64_t HomeWeight::*key) {
  int64_t value = 0;
  for (const HomeWeight& home : homes) value = std::max(value, home.*key);
  return value;
}

// Bundles that cost 4, 3, 2, 1 make two homes of 5.
TEST(Homes, GroupDearBundlesWithCheapOnes) {
  const OneEach c({{4, 0, 0}, {3, 0, 0}, {2, 0, 0}, {1, 0, 0}}, {0, 0, 0, 0});
  const auto bundle_at = group_into_homes(*c.bundles, 2, {});
  const Bundles grouped = permuted(*c.bundles, bundle_at);
  const auto homes = homes_of(grouped, 2);
  EXPECT_EQ(homes[0].cost, 5);
  EXPECT_EQ(homes[1].cost, 5);
}

// A look at every home for every bundle would be 10^11 looks.
TEST(Homes, AreDealtBundlesInHundredsOfThousands) {
  std::vector<Weights> items;
  for (int64_t i = 0; i < 300'000; ++i) items.push_back({1 + i % 7, 0, 1});
  const OneEach c(items, std::vector<int32_t>(items.size(), 0));
  const auto homes =
      homes_of(permuted(*c.bundles, group_into_homes(*c.bundles, 2, {})), 2);
  EXPECT_EQ(most(homes, &HomeWeight::cost), 8);
}

TEST(Homes, WeighItemsOverAPeriod) {
  const std::vector<ItemClass> classes{{{3, 40}, 5, 7, 11, 13, kAnyZone}};
  Bundles bundles(classes, {9, 1}, {0, 0});
  bundles.add(1, 0, 2);
  const HomeWeight item = weigh_item(bundles, 0);
  EXPECT_EQ(item.cost, 9 * 3 + 40);
  EXPECT_EQ(item.memory, 24);
  EXPECT_EQ(item.elements, 7);
  EXPECT_EQ(weigh_bundle(bundles, 0).cost, 0);
  EXPECT_EQ(weigh_bundle(bundles, 1).cost, 2 * 67);
  EXPECT_EQ(weigh_bundle(bundles, 1).memory, 48);
  EXPECT_EQ(weigh_bundle(bundles, 1).elements, 14);
}

// Cost alone would pair 4 with 1; that home would keep 12 elements.
TEST(Homes, PutElementsBeforeCost) {
  const OneEach c({{4, 0, 6}, {3, 0, 1}, {2, 0, 1}, {1, 0, 6}}, {0, 0, 0, 0});
  const auto free = group_into_homes(*c.bundles, 2, {});
  EXPECT_EQ(
      most(homes_of(permuted(*c.bundles, free), 2), &HomeWeight::elements), 12);
  const auto limited = group_into_homes(*c.bundles, 2, at_most(7));
  const auto homes = homes_of(permuted(*c.bundles, limited), 2);
  EXPECT_EQ(most(homes, &HomeWeight::elements), 7);
  EXPECT_EQ(most(homes, &HomeWeight::cost), 6);
}

// Cost alone would pair the two that keep 6 bytes.
TEST(Homes, PutTheBudgetOnMemoryBeforeCost) {
  const OneEach c({{4, 6, 0}, {3, 1, 0}, {2, 1, 0}, {1, 6, 0}}, {0, 0, 0, 0});
  HomeLimits budgets;
  budgets.memory = 7;
  const auto bundle_at = group_into_homes(*c.bundles, 2, budgets);
  const auto homes = homes_of(permuted(*c.bundles, bundle_at), 2);
  EXPECT_EQ(most(homes, &HomeWeight::memory), 7);
  EXPECT_EQ(most(homes, &HomeWeight::cost), 6);
}

TEST(Homes, LevelMemoryAtEqualCost) {
  const OneEach c({{4, 9, 0}, {4, 8, 0}, {4, 2, 0}, {4, 1, 0}}, {0, 0, 0, 0});
  const auto bundle_at = group_into_homes(*c.bundles, 2, {});
  const auto homes = homes_of(permuted(*c.bundles, bundle_at), 2);
  EXPECT_EQ(most(homes, &HomeWeight::memory), 10);
}

TEST(Homes, KeepBundlesInTheirZone) {
  Random random(20);
  for (int trial = 0; trial < 100; ++trial) {
    const size_t tp = random.pick<size_t>({1, 2, 3});
    const size_t num_homes = random.pick<size_t>({2, 4, 7});
    std::vector<int32_t> zones;
    std::vector<Weights> items;
    for (size_t r = 0; r < num_homes * tp; ++r) {
      zones.push_back(static_cast<int32_t>(r / tp % 2));
      items.push_back({random.between(0, 99), random.between(0, 99),
                       random.between(0, 99)});
    }
    const OneEach c(items, zones);
    const auto bundle_at = group_into_homes(
        *c.bundles, static_cast<int32_t>(tp), at_most(random.between(9, 300)));
    std::vector<size_t> sorted = bundle_at;
    std::sort(sorted.begin(), sorted.end());
    std::vector<size_t> all(zones.size());
    std::iota(all.begin(), all.end(), size_t{0});
    ASSERT_EQ(sorted, all) << "trial " << trial;
    const Bundles grouped = permuted(*c.bundles, bundle_at);
    for (size_t r = 0; r < zones.size(); ++r) {
      ASSERT_EQ(zones[bundle_at[r]], zones[r]) << "trial " << trial;
      ASSERT_EQ(grouped.load(r)[0], items[bundle_at[r]].cost);
    }
  }
}

// With two homes of two, the three ways to pair four bundles are all there is.
TEST(Homes, AreAsLevelAsThreePairingsAllow) {
  Random random(21);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Weights> w;
    int64_t sum = 0;
    for (int i = 0; i < 4; ++i) {
      w.push_back({random.between(1, 99), 0, 0});
      sum += w.back().cost;
    }
    int64_t best = INT64_MAX;
    for (size_t partner = 1; partner < 4; ++partner) {
      const int64_t home = w[0].cost + w[partner].cost;
      best = std::min(best, std::max(home, sum - home));
    }
    const OneEach c(w, {0, 0, 0, 0});
    const auto bundle_at = group_into_homes(*c.bundles, 2, {});
    const auto homes = homes_of(permuted(*c.bundles, bundle_at), 2);
    ASSERT_EQ(most(homes, &HomeWeight::cost), best) << "trial " << trial;
  }
}

// Homes of 4 + 2, 4 + 2 and of 6, 1: a 2 may move beside the 1, but not beside
// the 6, which would be a load of 8.
TEST(LevelHomes, NeverRaisesTheLargestLoad) {
  const std::vector<ItemClass> classes{{{6}, 1}, {{4}, 2}, {{2}, 2}, {{1}, 1}};
  Bundles bundles(classes, {1}, {0, 0, 0, 0});
  for (size_t r : {size_t{0}, size_t{1}}) {
    bundles.add(r, 1, 1);
    bundles.add(r, 2, 1);
  }
  bundles.add(2, 0, 1);
  bundles.add(3, 3, 1);
  level_homes(bundles, 2, {}, 1000);
  for (size_t r = 0; r < 4; ++r) EXPECT_LE(bundles.load(r)[0], 6);
  EXPECT_LT(most(homes_of(bundles, 2), &HomeWeight::cost), 12);
}

// 9 + 3 and 1 + 1 on ranks of at most 9: the 3 moves beside a 1.
TEST(LevelHomes, MovesItemsFromDearHomesToCheapOnes) {
  const std::vector<ItemClass> classes{{{9}, 1}, {{3}, 1}, {{1}, 2}};
  Bundles bundles(classes, {1}, {0, 0, 0, 0});
  bundles.add(0, 0, 1);
  bundles.add(1, 1, 1);
  bundles.add(2, 2, 1);
  bundles.add(3, 2, 1);
  level_homes(bundles, 2, {}, 1000);
  EXPECT_EQ(most(homes_of(bundles, 2), &HomeWeight::cost), 9);
}

struct RandomBundles {
  std::vector<ItemClass> classes;
  std::optional<Bundles> bundles;

  RandomBundles(Random& random, size_t homes, size_t tp, int64_t dims) {
    std::vector<int32_t> zones;
    for (size_t r = 0; r < homes * tp; ++r) {
      zones.push_back(static_cast<int32_t>(r / tp % 2));
    }
    for (int64_t i = random.between(2, 6); i > 0; --i) {
      ItemClass c;
      for (int64_t p = 0; p < dims; ++p)
        c.load.push_back(random.between(1, 50));
      c.count = random.between(1, 20);
      c.elements = random.between(1, 50);
      c.home_bytes = random.between(1, 50);
      c.owner_bytes = random.between(0, 50);
      c.zone = random.pick<int32_t>({kAnyZone, 0, 1});
      classes.push_back(c);
    }
    std::vector<int64_t> steps{9};
    steps.resize(static_cast<size_t>(dims), 1);
    bundles.emplace(classes, steps, zones);
    deal_longest_first(*bundles);
  }
};

struct Snapshot {
  std::vector<int64_t> largest;  // per dimension
  int64_t cost = 0, elements = 0;

  Snapshot(const Bundles& bundles, size_t tp) : largest(bundles.dims(), 0) {
    for (size_t r = 0; r < bundles.num_ranks(); ++r) {
      for (size_t p = 0; p < largest.size(); ++p) {
        largest[p] = std::max(largest[p], bundles.load(r)[p]);
      }
    }
    const auto homes = homes_of(bundles, tp);
    cost = most(homes, &HomeWeight::cost);
    elements = most(homes, &HomeWeight::elements);
  }
};

void expect_all_dealt(const Bundles& bundles) {
  std::vector<int64_t> dealt(bundles.classes().size(), 0);
  for (size_t r = 0; r < bundles.num_ranks(); ++r) {
    for (const ClassCount& c : bundles.bundle(r)) {
      EXPECT_GT(c.count, 0);
      EXPECT_TRUE(bundles.may_own(r, c.item_class));
      dealt[static_cast<size_t>(c.item_class)] += c.count;
    }
  }
  for (size_t k = 0; k < dealt.size(); ++k) {
    EXPECT_EQ(dealt[k], bundles.classes()[k].count);
  }
}

// Without a limit on elements neither the largest load of any step nor the
// largest cost of a home rises.
TEST(LevelHomes, OnlyImproves) {
  Random random(22);
  int lower = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const size_t homes = random.pick<size_t>({2, 3, 4, 7});
    const size_t tp = random.pick<size_t>({1, 2, 4});
    RandomBundles c(random, homes, tp, random.between(1, 3));
    const Snapshot before(*c.bundles, tp);
    level_homes(*c.bundles, static_cast<int32_t>(tp), {}, 100'000);
    const Snapshot after(*c.bundles, tp);
    SCOPED_TRACE(cat("trial ", trial));
    expect_all_dealt(*c.bundles);
    for (size_t p = 0; p < before.largest.size(); ++p) {
      ASSERT_LE(after.largest[p], before.largest[p]);
    }
    // Within what counts as level, cost may be given for memory.
    int64_t sum = 0;
    for (const HomeWeight& h : homes_of(*c.bundles, tp)) sum += h.cost;
    const double level =
        static_cast<double>(sum) / static_cast<double>(homes) * kLevelCost;
    ASSERT_LE(after.cost, std::max(before.cost, static_cast<int64_t>(level)));
    lower += after.cost < before.cost;
  }
  EXPECT_GT(lower, 20);
}

// A limit on elements may loosen loads, but only to a hair above the mean.
TEST(LevelHomes, BringsElementsUnderTheLimit) {
  Random random(23);
  int lower = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const size_t homes = random.pick<size_t>({2, 3, 4});
    const size_t tp = random.pick<size_t>({1, 2});
    RandomBundles c(random, homes, tp, 1);
    const Snapshot before(*c.bundles, tp);
    int64_t load = 0, elements = 0;
    for (size_t r = 0; r < homes * tp; ++r) load += c.bundles->load(r)[0];
    for (const HomeWeight& h : homes_of(*c.bundles, tp)) elements += h.elements;
    level_homes(*c.bundles, static_cast<int32_t>(tp),
                at_most(elements / static_cast<int64_t>(homes) + 1), 100'000);
    const Snapshot after(*c.bundles, tp);
    SCOPED_TRACE(cat("trial ", trial));
    expect_all_dealt(*c.bundles);
    ASSERT_LE(after.elements, before.elements);
    const double level = static_cast<double>(load) /
                         static_cast<double>(homes * tp) * kLevelCost;
    ASSERT_LE(after.largest[0],
              std::max(before.largest[0], static_cast<int64_t>(level)));
    lower += after.elements < before.elements;
  }
  EXPECT_GT(lower, 50);
}

}  // namespace
}  // namespace canzona::plan::homes_test
