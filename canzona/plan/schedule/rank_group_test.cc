#include "canzona/plan/schedule/rank_group.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::plan::rank_group_test {
namespace {

PlanOptions once_per_node(int32_t ranks_per_node, const ZeroSizes& sizes = {}) {
  PlanOptions options;
  options.ranks_per_node = ranks_per_node;
  options.zero.sizes = sizes;
  options.zero.reach = Reach::kPerNode;
  return options;
}

PlanPart part_on(const Mesh& mesh, const PlanOptions& options) {
  PlanPart part;
  part.mesh = mesh;
  part.options = options;
  part.options.zero.sizes = with_states(options.zero.sizes, mesh.homes());
  return part;
}

// Returns the levels of z homes in a row.
Levels levels_at(PlanPart part, int32_t rank, int32_t z) {
  part.options.zero.sizes.z3 = z;
  return levels_of(part, group_of(part, rank, GroupKind::kParameters));
}

// The oracle computes coordinates by counting, without divisions.
struct Counted {
  int32_t stage, dp, ep, cp, t, home;
};
std::vector<Counted> count_up(const Mesh& mesh) {
  std::vector<Counted> all;
  for (int32_t stage = 0; stage < mesh.pp; ++stage) {
    int32_t home = 0;
    for (int32_t d = 0; d < mesh.dp; ++d)
      for (int32_t e = 0; e < mesh.ep; ++e)
        for (int32_t c = 0; c < mesh.cp; ++c, ++home)
          for (int32_t t = 0; t < mesh.tp; ++t)
            all.push_back({stage, d, e, c, t, home});
  }
  return all;
}

template <class Visit>
void each_mesh(int32_t most, Visit visit) {
  for (int32_t dp = 1; dp <= most; ++dp)
    for (int32_t cp = 1; dp * cp <= most; ++cp)
      for (int32_t tp = 1; dp * cp * tp <= most; ++tp)
        for (int32_t pp = 1; dp * cp * tp * pp <= most; ++pp)
          for (int32_t ep = 1; dp * cp * tp * pp * ep <= most; ++ep)
            visit(Mesh{.dp = dp, .cp = cp, .tp = tp, .pp = pp, .ep = ep});
}

TEST(Coordinates, AreThoseOfRanksThatAreCountedUp) {
  each_mesh(64, [](const Mesh& mesh) {
    const std::vector<Counted> all = count_up(mesh);
    ASSERT_EQ(std::ssize(all), mesh.world());
    for (int32_t rank = 0; rank < mesh.world(); ++rank) {
      const Counted& expected = all[static_cast<size_t>(rank)];
      const Coordinates at = coordinates_of(mesh, rank);
      ASSERT_EQ((std::array{at.stage, at.dp, at.ep, at.cp, at.t, at.home}),
                (std::array{expected.stage, expected.dp, expected.ep,
                            expected.cp, expected.t, expected.home}))
          << to_string(mesh) << " rank " << rank;
      ASSERT_EQ(mesh.rank(at.stage, at.home, at.t), rank);
      ASSERT_EQ(mesh.home_of_expert(at.expert_home, at.ep), at.home);
    }
  });
}

TEST(Coordinates, OfPlanesAreThoseOfPlacesAndTpRanksThatAreCountedUp) {
  each_mesh(32, [](const Mesh& mesh) {
    if (mesh.ep > 1 || mesh.cp > 1) return;
    for (const ZeroSizes& zero : all_zero_sizes(mesh.homes())) {
      SCOPED_TRACE(cat(to_string(mesh), " ", to_string(zero)));
      const Mesh grid = fold(mesh, zero);
      int32_t plane = 0;
      for (int32_t place = 0; place < grid.places; ++place)
        for (int32_t t = 0; t < mesh.tp; ++t, ++plane) {
          ASSERT_EQ(grid.plane(place, t), plane);
          const Coordinates at =
              coordinates_of(grid, grid.rank(0, grid.homes() - 1, plane));
          ASSERT_EQ((std::array{at.t, at.place, at.tp_rank}),
                    (std::array{plane, place, t}));
        }
      ASSERT_EQ(plane, grid.tp);
    }
  });
}

TEST(Coordinates, OfNodesAreCountedUp) {
  for (const int32_t ranks_per_node : {1, 3, 8}) {
    PlanOptions options;
    options.ranks_per_node = ranks_per_node;
    int32_t rank = 0;
    for (int32_t node = 0; node < 5; ++node)
      for (int32_t i = 0; i < ranks_per_node; ++i, ++rank)
        EXPECT_EQ(node_of(options, rank), node) << ranks_per_node;
  }
}

// The numbers that ranks of one group share, and that differ between groups.
using Common = std::array<int32_t, 5>;
Common in_common(const PlanPart& part, GroupKind kind, const Counted& at) {
  const auto [z1, z2, z3] = part.options.zero.sizes;
  const bool everywhere =
      part.options.zero.replica_sum == ReplicaSum::kAllReduce;
  const int32_t line = at.stage, t = at.t, home = at.home;
  switch (kind) {
    case GroupKind::kAll:
      return {};
    case GroupKind::kSums:
      return {line, t, home / z1, home % z2, 0};
    case GroupKind::kExperts:
      return {line, t, at.ep, 0, 0};
    case GroupKind::kPublish:
      return {line, t, home / z1, home % z3, 0};
    case GroupKind::kReplicas:
      return {line, t, home % (everywhere ? z2 : z1), 0, 0};
    case GroupKind::kAllGroups:
      return {line, t, home % z2, 0, 0};
    case GroupKind::kParameters:
      return {line, t, home / z3, 0, 0};
    case GroupKind::kGradients:
      return {line, t, home / z2, 0, 0};
    case GroupKind::kExchange:
      return {line, home / part.grid.places, 0, 0, 0};
  }
  return {};
}

void expect_groups(const PlanPart& part) {
  const std::vector<Counted> all = count_up(part.mesh);
  for (int k = 0; k < kNumGroupKinds; ++k) {
    const auto kind = static_cast<GroupKind>(k);
    if (kind == GroupKind::kExchange && part.mesh.ep > 1) continue;
    std::map<Common, std::vector<int32_t>> groups;
    for (int32_t r = 0; r < part.mesh.world(); ++r)
      groups[in_common(part, kind, all[static_cast<size_t>(r)])].push_back(r);
    for (const auto& [common, ranks] : groups)
      for (size_t i = 0; i < ranks.size(); ++i) {
        const RankGroup group = group_of(part, ranks[i], kind);
        ASSERT_EQ(group.count, std::ssize(ranks));
        ASSERT_EQ(group.number_of(ranks[i]), static_cast<int32_t>(i));
        if (i > 0) {
          ASSERT_EQ(group, group_of(part, ranks[0], kind));
          continue;
        }
        for (size_t j = 0; j < ranks.size(); ++j)
          ASSERT_EQ(group.rank(static_cast<int32_t>(j)), ranks[j]);
        for (int32_t other = -1; other <= part.mesh.world(); ++other)
          ASSERT_EQ(group.number_of(other) >= 0,
                    std::ranges::find(ranks, other) != ranks.end());
      }
  }
}

TEST(RankGroups, HaveThoseWithSomethingInCommon) {
  each_mesh(64, [](const Mesh& mesh) {
    // Meshes with slices have no ep, and treat cp as additional homes.
    if (mesh.ep == 1 && mesh.cp > 1) return;
    PlanPart part = part_on(mesh, {});
    part.grid = mesh;
    const std::vector<ZeroSizes> sizes =
        mesh.ep > 1 ? std::vector{ZeroSizes{mesh.homes(), 1, 1}}
                    : all_zero_sizes(mesh.homes());
    for (const ZeroSizes& zero : sizes) {
      SCOPED_TRACE(cat(to_string(mesh), " ", to_string(zero)));
      part.options.zero.sizes = zero;
      part.options.zero.replica_sum =
          zero.z1 % 3 == 0 ? ReplicaSum::kAllReduce : ReplicaSum::kScatter;
      part.grid = fold(mesh, zero);
      ASSERT_NO_FATAL_FAILURE(expect_groups(part));
    }
  });
}

// Ranks of a part of experts, counted in the whole.
TEST(RankGroups, OfExpertsAreThoseOfOneCoordinate) {
  each_mesh(64, [](const Mesh& whole) {
    const std::vector<Counted> all = count_up(whole);
    for (int32_t e = 0; e < whole.ep; ++e) {
      PlanPart part;
      part.mesh = whole;
      part.mesh.ep = 1;
      part.ep = whole.ep;
      part.e = e;
      int32_t next = 0;
      for (int32_t rank = 0; rank < whole.world(); ++rank)
        if (all[static_cast<size_t>(rank)].ep == e) {
          ASSERT_EQ(part.rank_in_whole(next++), rank) << to_string(whole);
        }
      ASSERT_EQ(next, part.mesh.world());
    }
  });
}

// Levels are the members on one node, and the members with the same number
// inside their nodes.
TEST(GroupLevels, AreTheNodesAndThePlacesInThem) {
  int num_in_two = 0;
  each_mesh(64, [&](const Mesh& mesh) {
    if (mesh.ep > 1 || mesh.cp > 1) return;
    for (const ZeroSizes& zero : all_zero_sizes(mesh.homes()))
      for (const int32_t node : {1, 2, 3, 4, 8}) {
        PlanPart part = part_on(mesh, once_per_node(node, zero));
        part.grid = fold(mesh, zero);
        try {
          check_levels(part);
        } catch (const UsageError&) {
          continue;
        }
        for (int32_t rank = 0; rank < mesh.world(); ++rank) {
          const RankGroup group = group_of(part, rank, GroupKind::kGradients);
          const Levels levels = levels_of(part, group);
          ASSERT_EQ(levels.inside * levels.across, group.count);
          if (levels.across == 1) continue;
          ++num_in_two;
          const RankGroup inside = inside_level(group, levels, rank);
          const RankGroup across = across_level(group, levels, rank);
          int32_t before = 0;
          for (int32_t i = 0; i < group.count; ++i) {
            const int32_t peer = group.rank(i);
            const bool beside = peer / node == rank / node;
            ASSERT_EQ(inside.number_of(peer) >= 0, beside);
            before += beside && peer < rank ? 1 : 0;
          }
          ASSERT_EQ(inside.number_of(rank), before);
          ASSERT_EQ(across.number_of(rank),
                    group.number_of(rank) / levels.inside);
          for (int32_t i = 0; i < across.count; ++i)
            ASSERT_EQ(inside_level(group, levels, across.rank(i))
                          .number_of(across.rank(i)),
                      before);
        }
      }
  });
  EXPECT_GT(num_in_two, 1000);
}

TEST(GroupLevels, SplitAGroupIntoItsNodes) {
  const Mesh mesh = parse_mesh("dp=16");
  const PlanOptions options = once_per_node(4);
  EXPECT_EQ(levels_at(part_on(mesh, options), 5, 16), (Levels{4, 4}));
  EXPECT_EQ(levels_at(part_on(mesh, options), 5, 8), (Levels{4, 2}));
  PlanOptions direct = options;
  direct.zero.reach = Reach::kDirect;
  EXPECT_EQ(levels_at(part_on(mesh, direct), 5, 16), (Levels{16, 1}));
}

TEST(GroupLevels, AreOneWhereNothingIsSaved) {
  const Mesh mesh = parse_mesh("dp=16");
  EXPECT_EQ(levels_at(part_on(mesh, once_per_node(4)), 5, 4), (Levels{4, 1}));
  EXPECT_EQ(levels_at(part_on(mesh, once_per_node(4)), 5, 2), (Levels{2, 1}));
  EXPECT_EQ(levels_at(part_on(mesh, once_per_node(1)), 5, 16), (Levels{16, 1}));
}

TEST(GroupLevels, CountHomesWhereRanksShareThem) {
  const Mesh mesh = parse_mesh("dp=8,tp=2,pp=2");
  for (const int32_t rank : {0, 7, 16, 31}) {
    EXPECT_EQ(levels_at(part_on(mesh, once_per_node(4)), rank, 8),
              (Levels{2, 4}));
    EXPECT_EQ(levels_at(part_on(mesh, once_per_node(2)), rank, 8),
              (Levels{8, 1}));
  }
}

TEST(GroupLevels, NeedEquallyManyRanksOnEveryNode) {
  const Mesh mesh = parse_mesh("dp=12");
  check_levels(part_on(mesh, once_per_node(4, {12, 12, 4})));
  check_levels(part_on(mesh, once_per_node(3, {12, 3, 12})));
  // One group inside a node, one with a rank on each of two.
  check_levels(part_on(mesh, once_per_node(3, {12, 2, 2})));
  EXPECT_THROW(check_levels(part_on(mesh, once_per_node(8, {12, 12, 12}))),
               UsageError);
  EXPECT_THROW(check_levels(part_on(mesh, once_per_node(4, {12, 3, 3}))),
               UsageError);
  EXPECT_THROW(check_levels(part_on(mesh, once_per_node(5, {12, 4, 1}))),
               UsageError);
  PlanOptions direct = once_per_node(5, {12, 4, 1});
  direct.zero.reach = Reach::kDirect;
  check_levels(part_on(mesh, direct));
}

// A stage that begins inside a node.
TEST(GroupLevels, LookAtEveryStage) {
  const Mesh mesh = parse_mesh("dp=6,pp=2");
  check_levels(part_on(mesh, once_per_node(3, {6, 6, 6})));
  check_levels(part_on(mesh, once_per_node(2, {6, 6, 6})));
  check_levels(part_on(mesh, once_per_node(6, {6, 6, 6})));
  EXPECT_THROW(check_levels(part_on(mesh, once_per_node(4, {6, 6, 6}))),
               UsageError);
  check_levels(part_on(mesh, once_per_node(4, {6, 2, 2})));
}

TEST(GroupLevels, ARefusalNamesTheGroupAndTheWayOut) {
  try {
    check_levels(part_on(parse_mesh("dp=12"), once_per_node(8, {12, 4, 12})));
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_STREQ(
        error.what(),
        "collectives node: the group of z3 = 12 data-parallel ranks "
        "from rank 0 to 11 does not have the same number of ranks on every "
        "node of 8; choose another size, or collectives=direct");
  }
}

// dp=4, ep=2 on nodes of four: of an ep coordinate's four homes two are on
// each.
TEST(GroupLevels, OfExpertsGoByTheirOwnRanks) {
  PlanPart experts = part_on(parse_mesh("dp=4"), once_per_node(4, {4, 4, 4}));
  EXPECT_EQ(levels_at(experts, 1, 4), (Levels{4, 1}));
  experts.ep = 2;
  experts.e = 1;
  EXPECT_EQ(levels_at(experts, 1, 4), (Levels{2, 2}));
  check_levels(experts);
  experts.options.ranks_per_node = 3;
  EXPECT_THROW(check_levels(experts), UsageError);
}

// A power of two of the ranks on every node, as many on each; experts' groups
// with context parallelism are runs of runs.
TEST(GroupLevels, OfPlainStorageAreTheNodesAndThePlacesInThem) {
  std::map<GroupKind, int> num_in_two;
  int num_refused = 0;
  each_mesh(64, [&](const Mesh& mesh) {
    for (const int32_t node : {1, 2, 3, 4, 8, 16}) {
      PlanPart part = part_on(mesh, once_per_node(node));
      part.grid = mesh;
      bool allowed = true;
      try {
        check_levels(part);
      } catch (const UsageError&) {
        allowed = false;
        ++num_refused;
      }
      bool has_power = true;
      for (const GroupKind kind : {GroupKind::kSums, GroupKind::kExperts})
        for (int32_t rank = 0; rank < mesh.world(); ++rank) {
          if (kind == GroupKind::kExperts && mesh.ep == 1) continue;
          const RankGroup group = group_of(part, rank, kind);
          std::map<int32_t, int32_t> on_node;
          for (int32_t i = 0; i < group.count; ++i)
            ++on_node[group.rank(i) / node];
          const int32_t here = on_node[rank / node];
          for (const auto& [other, count] : on_node)
            has_power &= on_node.size() == 1 ||
                         (count == here && (count & (count - 1)) == 0);
          if (!allowed) continue;
          const Levels levels = levels_of(part, rank, kind);
          const bool in_two = here > 1 && here < group.count;
          ASSERT_EQ(levels.across, in_two ? std::ssize(on_node) : 1);
          ASSERT_EQ(levels.inside * levels.across, group.count);
          if (!in_two) continue;
          ++num_in_two[kind];
          const RankGroup inside = inside_level(group, levels, rank);
          const RankGroup across = across_level(group, levels, rank);
          ASSERT_EQ(inside.count, here);
          for (int32_t i = 0; i < group.count; ++i) {
            const int32_t peer = group.rank(i), own = group.number_of(rank);
            ASSERT_EQ(inside.number_of(peer) >= 0, peer / node == rank / node);
            ASSERT_EQ(across.number_of(peer) >= 0, i % here == own % here);
          }
          for (int32_t i = 0; i < inside.count; ++i)
            ASSERT_EQ(inside.number_of(inside.rank(i)), i);
          for (int32_t i = 0; i < across.count; ++i)
            ASSERT_EQ(across.number_of(across.rank(i)), i);
        }
      ASSERT_EQ(allowed, has_power) << to_string(mesh) << ", nodes of " << node;
    }
  });
  EXPECT_GT(num_in_two[GroupKind::kSums], 1000);
  EXPECT_GT(num_in_two[GroupKind::kExperts], 300);
  EXPECT_GT(num_refused, 100);
}

TEST(GroupLevels, OfPlainStorageAreRefusedWithTheCounts) {
  try {
    check_levels(part_on(parse_mesh("dp=7"), once_per_node(4)));
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "collectives node: the group of 7 data-parallel ranks from "
                 "rank 0 to 6 has 4, 3 ranks on its nodes of 4, not the same "
                 "power of two on each; choose another mesh or number of "
                 "ranks per node, or collectives=auto or collectives=direct");
  }
}

// Nothing but modules goes in two levels where slices are cut, nothing at all
// where ranks are replicas.
TEST(GroupLevels, OfSumsAreThoseOfPlainStorage) {
  const Mesh mesh = parse_mesh("dp=8");
  EXPECT_EQ(levels_of(part_on(mesh, once_per_node(4)), 0, GroupKind::kSums),
            (Levels{4, 2}));
  EXPECT_EQ(levels_of(part_on(mesh, once_per_node(4, {8, 2, 2})), 0,
                      GroupKind::kSums),
            (Levels{4, 1}));
  EXPECT_EQ(levels_of(part_on(mesh, once_per_node(4, {4, 1, 1})), 0,
                      GroupKind::kReplicas),
            (Levels{2, 1}));
}

TEST(Reach, HasWords) {
  for (const Reach reach : {Reach::kDirect, Reach::kPerNode, Reach::kAuto})
    EXPECT_EQ(parse_reach(to_string(reach)), reach);
  EXPECT_THROW(parse_reach("nodes"), UsageError);
}

}  // namespace
}  // namespace canzona::plan::rank_group_test
