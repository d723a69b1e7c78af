// Items that only certain ranks may own, where these sets overlap.
#include <gmock/gmock.h>

#include "canzona/plan/search/joint.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::owner_sets_test {
namespace {

// Rank 0 alone may own the 6, ranks 0 and 1 the 4s, all ranks the 5s.
TEST(OwnerSets, ItemsStayWithTheirOwners) {
  const OwnerSets sets{{0}, {0, 1}, {0, 1, 2}};
  std::vector<ItemClass> classes(3);
  classes[0] = {{6}, 1, 0, 0, 0, 0};
  classes[1] = {{4}, 2, 0, 0, 0, 1};
  classes[2] = {{5}, 2, 0, 0, 0, 2};
  const Bundles bundles = search_bundles(classes, {1}, 3, sets);
  EXPECT_EQ(bundles.objective(), 10);
  for (const ClassCount& item : bundles.bundle(2))
    EXPECT_EQ(item.item_class, 2);
  for (const ClassCount& item : bundles.bundle(1))
    EXPECT_NE(item.item_class, 0);
  // The third and the fourth largest share a rank if four items do not.
  EXPECT_EQ(objective_bound(classes, {1}, 3, sets, 10), 9);
}

TEST(OwnerSets, RanksOfTheSameSetsHaveTheSameZone) {
  const OwnerSets sets{{0, 1}, {1, 2, 3}};
  const std::vector<ItemClass> classes;
  const Bundles bundles(classes, {1}, 5, sets);
  EXPECT_EQ(bundles.zone(2), bundles.zone(3));
  for (size_t a : {0u, 1u, 2u, 4u})
    for (size_t b : {0u, 1u, 2u, 4u})
      EXPECT_EQ(bundles.zone(a) == bundles.zone(b), a == b);
}

struct SetCase {
  std::vector<ItemClass> classes;  // one item each
  std::vector<int64_t> steps;
  size_t ranks = 1;
  OwnerSets sets;
};

SetCase random_set_case(Random& random) {
  SetCase c;
  c.ranks = static_cast<size_t>(random.between(1, 4));
  const auto dims = random.between(1, 3);
  for (int64_t p = 0; p < dims; ++p) c.steps.push_back(random.between(1, 4));
  for (int64_t i = random.between(0, 6); i > 0; --i) {
    ItemClass item;
    for (int64_t p = 0; p < dims; ++p)
      item.load.push_back(random.between(0, 9));
    item.count = 1;
    item.zone = static_cast<int32_t>(c.sets.size());
    std::vector<int32_t> set;
    for (size_t r = 0; r < c.ranks; ++r)
      if (random.coin()) set.push_back(static_cast<int32_t>(r));
    if (set.empty()) set.push_back(0);
    c.sets.push_back(set);
    c.classes.push_back(item);
  }
  return c;
}

int64_t objective_of(const SetCase& c, const std::vector<int32_t>& rank_of) {
  int64_t sum = 0;
  for (size_t p = 0; p < c.steps.size(); ++p) {
    std::vector<int64_t> load(c.ranks, 0);
    for (size_t i = 0; i < rank_of.size(); ++i)
      load[static_cast<size_t>(rank_of[i])] += c.classes[i].load[p];
    sum += c.steps[p] * *std::max_element(load.begin(), load.end());
  }
  return sum;
}

// Returns the optimum by trying every assignment of items to their owners.
int64_t best_of_all(const SetCase& c, std::vector<int32_t>& rank_of) {
  if (rank_of.size() == c.classes.size()) return objective_of(c, rank_of);
  int64_t best = INT64_MAX;
  for (const int32_t rank : c.sets[rank_of.size()]) {
    rank_of.push_back(rank);
    best = std::min(best, best_of_all(c, rank_of));
    rank_of.pop_back();
  }
  return best;
}

TEST(OwnerSets, LieBetweenTheBoundAndTheOptimum) {
  Random random(23);
  int64_t optimal = 0, cases = 400;
  for (int64_t i = 0; i < cases; ++i) {
    const SetCase c = random_set_case(random);
    std::vector<int32_t> none;
    const int64_t best = best_of_all(c, none);
    const Bundles bundles = search_bundles(c.classes, c.steps, c.ranks, c.sets);
    std::vector<int32_t> rank_of(c.classes.size(), -1);
    for (size_t r = 0; r < c.ranks; ++r)
      for (const ClassCount& item : bundles.bundle(r))
        rank_of[static_cast<size_t>(item.item_class)] = static_cast<int32_t>(r);
    for (size_t k = 0; k < rank_of.size(); ++k)
      ASSERT_EQ(std::count(c.sets[k].begin(), c.sets[k].end(), rank_of[k]), 1);
    ASSERT_EQ(bundles.objective(), objective_of(c, rank_of));
    ASSERT_GE(bundles.objective(), best);
    ASSERT_LE(objective_bound(c.classes, c.steps, c.ranks, c.sets,
                              bundles.objective()),
              best);
    optimal += bundles.objective() == best;
  }
  EXPECT_GT(optimal, cases * 9 / 10);
}

}  // namespace
}  // namespace canzona::plan::owner_sets_test
