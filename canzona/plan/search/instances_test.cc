#include "canzona/plan/search/instances.h"

#include <gmock/gmock.h>

#include <map>

#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::instances_test {
namespace {

using ::testing::Each;
using ::testing::UnorderedElementsAre;

// Returns the number of tensors of each class by home.
using Counts = std::map<std::pair<int32_t, int32_t>, int32_t>;

struct Case {
  std::vector<InstanceBucket> buckets;
  std::vector<std::vector<Demand>> demands;
  std::vector<int64_t> loads;

  size_t homes() const { return loads.size(); }
};

Counts demanded(const Case& c) {
  Counts counts;
  for (size_t k = 0; k < c.demands.size(); ++k) {
    for (const Demand& d : c.demands[k]) {
      if (d.count > 0) counts[{static_cast<int32_t>(k), d.home}] += d.count;
    }
  }
  return counts;
}

Counts given(const Case& c, const Placement& placed) {
  Counts counts;
  for (size_t b = 0; b < c.buckets.size(); ++b) {
    for (size_t i = 0; i < c.buckets[b].instances.size(); ++i) {
      ++counts[{c.buckets[b].instances[i].item_class, placed.home[b][i]}];
    }
  }
  return counts;
}

int64_t fullest(const Case& c, size_t b, const std::vector<int32_t>& home) {
  std::vector<int64_t> held(c.homes(), 0);
  for (size_t i = 0; i < home.size(); ++i) {
    held[static_cast<size_t>(home[i])] += c.buckets[b].instances[i].elements;
  }
  return *std::max_element(held.begin(), held.end());
}

// Returns the cap that longest-first dealing by elements reaches in every
// bucket.
int64_t longest_first(const InstanceBucket& bucket, size_t homes) {
  std::vector<int64_t> sizes;
  for (const Instance& i : bucket.instances) sizes.push_back(i.elements);
  std::sort(sizes.rbegin(), sizes.rend());
  std::vector<int64_t> held(homes, 0);
  for (int64_t size : sizes) {
    *std::min_element(held.begin(), held.end()) += size;
  }
  return *std::max_element(held.begin(), held.end());
}

// Instances of up to `classes` classes; a hidden placement sets the demands, so
// that they can be met, and with `tight` also the caps.
Case random_case(Random& random, size_t most_instances, bool tight) {
  Case c;
  c.loads.assign(random.pick<size_t>({1, 2, 3, 4}), 0);
  const int64_t classes = random.between(1, 4);
  std::vector<int64_t> elements, load;
  for (int64_t k = 0; k < classes; ++k) {
    elements.push_back(random.between(1, 20));
    load.push_back(random.between(1, 9));
  }
  Counts counts;
  int32_t tensor = 0;
  const int64_t total = random.between(1, static_cast<int64_t>(most_instances));
  c.buckets.resize(random.pick<size_t>({1, 2, 3}));
  for (InstanceBucket& bucket : c.buckets) {
    std::vector<int64_t> held(c.homes(), 0);
    for (int64_t i = total / static_cast<int64_t>(c.buckets.size()); i >= 0;
         --i) {
      const auto k = static_cast<size_t>(random.between(0, classes - 1));
      const size_t home = random.next() % c.homes();
      bucket.instances.push_back(
          {tensor++, static_cast<int32_t>(k), elements[k], load[k]});
      held[home] += elements[k];
      c.loads[home] += load[k];
      ++counts[{static_cast<int32_t>(k), static_cast<int32_t>(home)}];
    }
    const int64_t hidden = *std::max_element(held.begin(), held.end());
    bucket.cap = tight ? hidden : random.between(hidden / 2 + 1, hidden);
    bucket.reachable_cap =
        std::max(bucket.cap, longest_first(bucket, c.homes()));
  }
  c.demands.resize(static_cast<size_t>(classes));
  for (const auto& [key, count] : counts) {
    c.demands[static_cast<size_t>(key.first)].push_back({key.second, count});
  }
  return c;
}

// Finds by brute force whether any placement gives every home what it demands
// within all caps.
class TriesAll {
 public:
  explicit TriesAll(const Case& c) : c_(c), left_(demanded(c)) {}

  bool possible(size_t b = 0, size_t i = 0) {
    if (b == c_.buckets.size()) return true;
    if (i == 0) held_.assign(c_.homes(), 0);
    if (i == c_.buckets[b].instances.size()) return possible(b + 1, 0);
    const std::vector<int64_t> before = held_;
    const Instance& instance = c_.buckets[b].instances[i];
    for (size_t h = 0; h < c_.homes(); ++h) {
      int32_t& left = left_[{instance.item_class, static_cast<int32_t>(h)}];
      held_ = before;
      held_[h] += instance.elements;
      if (left == 0 || held_[h] > c_.buckets[b].cap) continue;
      --left;
      const bool found = possible(b, i + 1);
      ++left;
      if (found) return true;
    }
    held_ = before;
    return false;
  }

 private:
  const Case& c_;
  Counts left_;
  std::vector<int64_t> held_;
};

void expect_demands_kept(const Case& c, const Placement& placed) {
  ASSERT_EQ(placed.changed.size(), c.homes());
  const Counts wanted = demanded(c);
  const Counts got = given(c, placed);
  for (size_t k = 0; k < c.demands.size(); ++k) {
    for (size_t h = 0; h < c.homes(); ++h) {
      if (placed.changed[h]) continue;
      const std::pair key(static_cast<int32_t>(k), static_cast<int32_t>(h));
      EXPECT_EQ(got.count(key) ? got.at(key) : 0,
                wanted.count(key) ? wanted.at(key) : 0)
          << "class " << k << ", home " << h;
    }
  }
}

// Two buckets with two large and two small tensors each; both homes want two of
// each class. No home may keep both large ones of a bucket.
TEST(PlaceInstances, SpreadsAClassOverTheBuckets) {
  Case c;
  for (int32_t first : {0, 4}) {
    c.buckets.push_back({{{first, 0, 10, 5},
                          {first + 1, 0, 10, 5},
                          {first + 2, 1, 1, 2},
                          {first + 3, 1, 1, 2}},
                         11,
                         11});
  }
  c.demands = {{{0, 2}, {1, 2}}, {{0, 2}, {1, 2}}};
  c.loads = {14, 14};
  const Placement placed = place_instances(c.buckets, c.demands, c.loads);
  EXPECT_THAT(placed.changed, Each(false));
  for (const std::vector<int32_t>& home : placed.home) {
    EXPECT_THAT((std::vector{home[0], home[1]}), UnorderedElementsAre(0, 1));
    EXPECT_THAT((std::vector{home[2], home[3]}), UnorderedElementsAre(0, 1));
  }
}

// Home 0 demands all tensors of the only bucket, but the byte budget overrules
// it.
TEST(PlaceInstances, OverrulesDemandsThatNoPlacementMeets) {
  Case c;
  c.buckets.push_back({{{0, 0, 10, 5}, {1, 0, 10, 5}}, 10, 10});
  c.demands = {{{0, 2}}};
  c.loads = {10, 0};
  const Placement placed = place_instances(c.buckets, c.demands, c.loads);
  EXPECT_THAT(placed.home[0], UnorderedElementsAre(0, 1));
  EXPECT_THAT(placed.changed, Each(true));
}

TEST(PlaceInstances, KeepsCapsAndDemandsWhereThatIsPossible) {
  Random random(30);
  int possible = 0, impossible = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    const Case c = random_case(random, 9, random.coin());
    const Placement placed = place_instances(c.buckets, c.demands, c.loads);
    SCOPED_TRACE(cat("trial ", trial));
    expect_demands_kept(c, placed);
    if (!TriesAll(c).possible()) {
      ++impossible;
      continue;
    }
    ++possible;
    for (size_t b = 0; b < c.buckets.size(); ++b) {
      ASSERT_LE(fullest(c, b, placed.home[b]), c.buckets[b].cap)
          << "bucket " << b;
    }
    ASSERT_THAT(placed.changed, Each(false));
  }
  EXPECT_GT(possible, 300);
  EXPECT_GT(impossible, 100);
}

TEST(PlaceInstances, NeverExceedsTheReachableCap) {
  Random random(31);
  for (int trial = 0; trial < 1000; ++trial) {
    const Case c = random_case(random, 40, random.coin());
    const Placement placed = place_instances(c.buckets, c.demands, c.loads);
    SCOPED_TRACE(cat("trial ", trial));
    expect_demands_kept(c, placed);
    for (size_t b = 0; b < c.buckets.size(); ++b) {
      ASSERT_EQ(placed.home[b].size(), c.buckets[b].instances.size());
      for (int32_t home : placed.home[b]) {
        ASSERT_GE(home, 0);
        ASSERT_LT(home, static_cast<int32_t>(c.homes()));
      }
      ASSERT_LE(fullest(c, b, placed.home[b]), c.buckets[b].reachable_cap);
    }
  }
}

}  // namespace
}  // namespace canzona::plan::instances_test
