#include "canzona/plan/storage/stored_pieces.h"

#include <gmock/gmock.h>

#include <map>
#include <numeric>
#include <set>

#include "canzona/base/error.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::replica_classes_test {
namespace {

using ::testing::ElementsAre;
using Sets = std::vector<std::vector<int32_t>>;

TEST(ReplicaClasses, HsdpHasALineOfEachReplica) {
  const Sets pairs{{0, 2}, {1, 3}};
  const ReplicaClasses made = make_replica_classes({pairs, {}, {{0, 2}}}, 4);
  ASSERT_EQ(made.classes.size(), 1u);
  EXPECT_THAT(made.class_of, ElementsAre(0, -1, 0));
  EXPECT_THAT(made.classes[0].lines,
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_EQ(made.classes[0].replicas, pairs);
  EXPECT_THAT(made.classes[0].tensors, ElementsAre(0, 2));
}

TEST(ReplicaClasses, OtherReplicasAreAnotherClass) {
  const Sets all{{0, 1, 2, 3}}, alone{{0}, {1}, {2}, {3}};
  const ReplicaClasses made = make_replica_classes({alone, all, alone}, 4);
  EXPECT_THAT(made.class_of, ElementsAre(0, 1, 0));
  EXPECT_EQ(made.classes[1].lines.size(), 4u);
}

TEST(ReplicaClasses, ATensorJoinsClassesThatHadNoRankInCommon) {
  const ReplicaClasses made =
      make_replica_classes({{{0}, {1}}, {{2}, {3}}, {{1}, {2}}}, 4);
  EXPECT_THAT(made.class_of, ElementsAre(0, 0, 0));
  EXPECT_THAT(made.classes[0].lines, ElementsAre(ElementsAre(0, 1, 2, 3)));
}

// Ranks in sets of `size`, `step` apart.
Sets partition(int32_t world, int32_t size) {
  Sets out;
  const int32_t sets = world / size;
  for (int32_t s = 0; s < sets; ++s) {
    out.emplace_back();
    for (int32_t i = 0; i < size; ++i) out.back().push_back(s + i * sets);
  }
  return out;
}

// Sets of tensors come from one of two ways to pair all ranks up, so that two
// tensors agree if and only if they come from the same way.
TEST(ReplicaClasses, AreTheConnectedTensorsOfOneWay) {
  Random random(7);
  for (const int32_t world : {1, 2, 4, 6, 7, 8, 16}) {
    std::vector<int32_t> sizes;
    for (int32_t s = 1; s <= world; ++s)
      if (world % s == 0) sizes.push_back(s);
    for (int trial = 0; trial < 60; ++trial) {
      std::vector<Sets> sets;
      std::vector<int32_t> way;
      for (int t = 0; t < 8; ++t) {
        way.push_back(random.pick(sizes));
        Sets own;
        for (const auto& set : partition(world, way.back()))
          if (random.coin()) own.push_back(set);
        sets.push_back(own);
      }
      const ReplicaClasses made = make_replica_classes(sets, world);
      // Connected components by repeated merging.
      std::vector<size_t> root(sets.size());
      std::iota(root.begin(), root.end(), size_t{0});
      for (size_t round = 0; round < sets.size(); ++round)
        for (size_t a = 0; a < sets.size(); ++a)
          for (size_t b = 0; b < sets.size(); ++b)
            for (const auto& set : sets[a])
              if (way[a] == way[b] &&
                  std::count(sets[b].begin(), sets[b].end(), set) > 0)
                root[a] = root[b] = std::min(root[a], root[b]);
      for (size_t a = 0; a < sets.size(); ++a) {
        ASSERT_EQ(made.class_of[a] < 0, sets[a].empty());
        for (size_t b = 0; b < sets.size(); ++b) {
          if (sets[a].empty() || sets[b].empty()) continue;
          ASSERT_EQ(made.class_of[a] == made.class_of[b], root[a] == root[b]);
        }
      }
      for (const ReplicaClass& c : made.classes) {
        std::set<std::vector<int32_t>> expected;
        for (const int32_t t : c.tensors)
          expected.insert(sets[index(t)].begin(), sets[index(t)].end());
        ASSERT_EQ(c.replicas, Sets(expected.begin(), expected.end()));
        for (size_t i = 0; i < c.lines.size(); ++i) {
          ASSERT_EQ(c.lines[i].size(), c.replicas.size());
          for (const auto& set : c.replicas)
            ASSERT_EQ(std::count(c.lines[i].begin(), c.lines[i].end(), set[i]),
                      1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace canzona::plan::replica_classes_test
